"""What a snapshot topic says, as an immutable map; pure. The cache swaps such maps as a whole.

Of a record, its text and the fields that it is found by are checked when it is folded in, which
takes a microsecond. It becomes a model when somebody asks for it: a hundred thousand models at once
cost ten times what reading the topic does, most of it in the garbage collector. A text that only
the model finds fault with is malformed from then on, as if it had been so from the start.

Of two records of one entity the one with the higher version counts, whatever their order; at the
same version a tombstone does. One without a version removes whatever there is, as compaction will.
"""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Annotated, Literal, NamedTuple, TypeGuard
from uuid import UUID

import msgspec
from pydantic import ValidationError

from onex_platform.domain.projection import MOST_VERSION, ModelRegistrationSnapshot
from onex_platform.domain.states import EnumNodeType, EnumRegistrationState

# Every character as what it is: a digit, a dash or something else.
_SHAPES = bytes(
    0 if chr(n) in "0123456789abcdef" else ord("-") if chr(n) == "-" else 1 for n in range(256)
)
_UUID_SHAPE = str(UUID(int=0)).encode().translate(_SHAPES)
_NO_KEY = "the key is no UUID in lower case"
_MOST_LISTS = 100
_MANY = 1000


class Trait(NamedTuple):
    """Something that entities can be looked up by."""

    kind: Literal["state", "node_type", "capability"]
    name: str


class MalformedSnapshotError(ValueError):
    """A record that is no snapshot; the message says why, without its content."""


class Entry(msgspec.Struct, gc=False):
    """One entity's snapshot as it was read; the garbage collector need not look at it."""

    value: bytes
    version: int
    state: EnumRegistrationState
    node_type: EnumNodeType | None
    model: ModelRegistrationSnapshot | None = None
    fault: str | None = None  # why it is no snapshot after all

    def snapshot(self) -> ModelRegistrationSnapshot | None:
        if self.model is None and self.fault is None:
            try:
                self.model = _modelled(self.value)
            except MalformedSnapshotError as error:
                self.fault = str(error)
        return self.model

    def has(self, trait: Trait) -> bool:
        if trait.kind == "state":
            return self.state == trait.name
        if trait.kind == "node_type":
            return self.node_type == trait.name
        # Most entities are ruled out without being parsed: unless something is escaped, the name
        # stands in the text.
        if f'"{trait.name}"'.encode() not in self.value and b"\\" not in self.value:
            return False
        shown = self.snapshot()
        return bool(shown and shown.capabilities and shown.capabilities.supports(trait.name))


class SnapshotMap:
    """All entities at one moment, by key; what it says never changes."""

    def __init__(
        self,
        entries: dict[bytes, Entry] | None = None,
        buried: dict[bytes, int] | None = None,
        lists: dict[Trait, dict[bytes, Entry]] | None = None,
        faulty: dict[bytes, str] | None = None,
    ) -> None:
        self._entries = entries or {}
        self._buried = buried or {}
        self._lists = lists or {}
        self._faulty = faulty or {}

    def __len__(self) -> int:
        return len(self._entries) - len(self._faulty)

    @property
    def buried(self) -> Mapping[bytes, int]:
        """The entities that a tombstone removed, with its version."""
        return MappingProxyType(self._buried)

    @property
    def faulty(self) -> Mapping[bytes, str]:
        """What was found to be no snapshot when somebody asked, with the reason."""
        return MappingProxyType(self._faulty)

    def get(self, entity_id: UUID) -> ModelRegistrationSnapshot | None:
        key = str(entity_id).encode()
        entry = self._entries.get(key)
        return None if entry is None else self._read(key, entry)

    def all(self) -> tuple[ModelRegistrationSnapshot, ...]:
        return self._read_all(self._entries)

    @property
    def kept(self) -> Collection[Trait]:
        """The traits that were asked for and are not looked for again; only so many are kept."""
        return self._lists.keys()

    def having(self, trait: Trait) -> tuple[ModelRegistrationSnapshot, ...]:
        """The entities with a trait: found by one scan, and kept by the maps that follow."""
        found = self._lists.get(trait)
        if found is None:
            found = {key: entry for key, entry in self._entries.items() if entry.has(trait)}
            if len(self._lists) < _MOST_LISTS:
                self._lists[trait] = found
        return self._read_all(found)

    def graves(self) -> SnapshotMap:
        """Only what was removed: where a reading of the same topic from its start begins."""
        return SnapshotMap(buried=self._buried)

    def _read_all(self, entries: Mapping[bytes, Entry]) -> tuple[ModelRegistrationSnapshot, ...]:
        with _collector_at_rest(len(entries)):
            shown = [entry.model or self._read(key, entry) for key, entry in entries.items()]
        return tuple([one for one in shown if one is not None])

    def _read(self, key: bytes, entry: Entry) -> ModelRegistrationSnapshot | None:
        shown = entry.snapshot()
        if entry.fault is not None:
            self._faulty[key] = entry.fault
        return shown


class Draft:
    """The next map while records are folded into it; the one it comes from stays as it is."""

    def __init__(self, base: SnapshotMap, domain: str) -> None:
        self._base = base
        self._domain = domain
        self._entries = base._entries
        self._buried = base._buried
        # Copies, because readers may be adding to the others.
        self._lists, self._faulty = base._lists.copy(), base._faulty.copy()
        self._is_followed = bool(self._lists or self._faulty)
        self._touched: set[bytes] = set()
        self._is_own = False

    def put(self, key: bytes | None, value: bytes) -> bool:
        """Fold a snapshot in; whether it was newer. Raises if it is no snapshot of the entity."""
        if not is_entity_key(key):
            raise MalformedSnapshotError(_NO_KEY)
        entry = read_entry(key, value, self._domain)
        known = self._entries.get(key)
        if entry.version <= (known.version if known else self._buried.get(key, 0)):
            return False
        if not self._is_own:
            self._own()
        self._entries[key] = entry
        if self._buried:
            self._buried.pop(key, None)
        if self._is_followed:
            self._touched.add(key)
        return True

    def bury(self, key: bytes | None, version: int | None) -> bool:
        """Fold a tombstone in; whether it changed anything."""
        if not is_entity_key(key):
            raise MalformedSnapshotError(_NO_KEY)
        known = self._entries.get(key)
        if version is not None and version < (known.version if known else self._buried.get(key, 0)):
            return False
        if not self._is_own:
            self._own()
        self._entries.pop(key, None)
        if version is None:
            self._buried.pop(key, None)
        else:
            self._buried[key] = version
        self._touched.add(key)
        return True

    def finished(self) -> SnapshotMap:
        if not self._is_own:
            return self._base
        lists = {trait: self._carried(trait, found) for trait, found in self._lists.items()}
        faulty = {key: fault for key, fault in self._faulty.items() if key not in self._touched}
        return SnapshotMap(self._entries, self._buried, lists, faulty)

    def _own(self) -> None:
        """Copy before the first change: most batches of a quiet topic change nothing."""
        self._entries, self._buried = self._entries.copy(), self._buried.copy()
        self._is_own = True

    def _carried(self, trait: Trait, found: dict[bytes, Entry]) -> dict[bytes, Entry]:
        now = {key: self._entries.get(key) for key in self._touched}
        having = {key: entry for key, entry in now.items() if entry and entry.has(trait)}
        gone = [key for key in self._touched if key in found and key not in having]
        if not having and not gone:
            return found
        carried = found | having
        for key in gone:
            del carried[key]
        return carried


@contextmanager
def _collector_at_rest(models: int) -> Iterator[None]:
    """Let the garbage collector pause while many models are made: none of them is garbage, and
    looking through them again and again takes twice as long as making them."""
    pause = models >= _MANY and gc.isenabled()
    if pause:
        gc.disable()
    try:
        yield
    finally:
        if pause:
            gc.enable()


class _Checked(msgspec.Struct, gc=False):
    """What a text is judged by when it is read, in the spelling of the publisher.

    The model judges every other spelling.
    """

    entity_id: str
    current_state: EnumRegistrationState
    snapshot_version: Annotated[int, msgspec.Meta(ge=1, le=MOST_VERSION)]
    domain: str
    node_type: EnumNodeType | None = None


_check = msgspec.json.Decoder(_Checked).decode


def is_entity_key(key: bytes | None) -> TypeGuard[bytes]:
    """Whether it is a UUID in the one spelling that counts: every other is a key of its own."""
    return key is not None and key.translate(_SHAPES) == _UUID_SHAPE


def read_entry(key: bytes, value: bytes, domain: str) -> Entry:
    """What readers make of a value under an entity's key; raises if it is no snapshot of it."""
    # Calls are spared here: this is the loop that a load consists of.
    try:
        found = _check(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _modelled_entry(key, value, domain)
    if found.entity_id.encode() != key or found.domain != domain:
        raise _misplaced(found.entity_id, key, domain)
    return Entry(value, found.snapshot_version, found.current_state, found.node_type)


def _modelled_entry(key: bytes, value: bytes, domain: str) -> Entry:
    """The entry of a text that only the model can judge."""
    model = _modelled(value)
    if model.to_kafka_key().encode() != key or model.domain != domain:
        raise _misplaced(model.to_kafka_key(), key, domain)
    return Entry(value, model.snapshot_version, model.current_state, model.node_type, model)


def _misplaced(entity_id: str, key: bytes, domain: str) -> MalformedSnapshotError:
    is_other = entity_id.encode() != key
    return MalformedSnapshotError(
        "entity_id is not the key" if is_other else f"domain is not {domain!r}"
    )


def _modelled(value: bytes) -> ModelRegistrationSnapshot:
    try:
        return ModelRegistrationSnapshot.model_validate_json(value)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the value"
        raise MalformedSnapshotError(f"{where}: {first['msg']}") from None
