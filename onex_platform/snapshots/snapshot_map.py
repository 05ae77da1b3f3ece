"""What a snapshot topic says, as an immutable map; pure. The cache swaps such maps as a whole.

A record is checked when it is folded in, which takes a microsecond, and becomes a model when
somebody asks for it: a hundred thousand models at once would cost ten times what reading them does,
most of it in the garbage collector.

Of two records of one entity the one with the higher version counts, whatever their order; at the
same version a tombstone does. One without a version removes whatever there is, as compaction will.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Annotated, Literal, NamedTuple
from uuid import UUID

import msgspec
from pydantic import ValidationError

from onex_platform.domain.projection import ModelRegistrationSnapshot
from onex_platform.domain.states import EnumNodeType, EnumRegistrationState

# Every character as what it is: a digit, a dash or something else.
_SHAPES = bytes(
    0 if chr(n) in "0123456789abcdef" else ord("-") if chr(n) == "-" else 1 for n in range(256)
)
_UUID_SHAPE = str(UUID(int=0)).encode().translate(_SHAPES)
_NO_KEY = "the key is no UUID in lower case"
_SHORT = 600
_MOST_LISTS = 100
_Instant = Annotated[datetime, msgspec.Meta(tz=True)]


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

    def snapshot(self) -> ModelRegistrationSnapshot:
        if self.model is None:
            self.model = _modelled(self.value)
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
        capabilities = self.snapshot().capabilities
        return capabilities is not None and capabilities.supports(trait.name)


class SnapshotMap:
    """All entities at one moment, by key; what it says never changes."""

    def __init__(
        self,
        entries: dict[bytes, Entry] | None = None,
        buried: dict[bytes, int] | None = None,
        lists: dict[Trait, dict[bytes, Entry]] | None = None,
    ) -> None:
        self._entries = entries or {}
        self._buried = buried or {}
        self._lists = lists or {}

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def buried(self) -> Mapping[bytes, int]:
        """The entities that a tombstone removed, with its version."""
        return MappingProxyType(self._buried)

    def get(self, entity_id: UUID) -> ModelRegistrationSnapshot | None:
        entry = self._entries.get(str(entity_id).encode())
        return None if entry is None else entry.snapshot()

    def all(self) -> tuple[ModelRegistrationSnapshot, ...]:
        return _snapshots(self._entries)

    def having(self, trait: Trait) -> tuple[ModelRegistrationSnapshot, ...]:
        """The entities with a trait: found by one scan, and kept by the maps that follow."""
        found = self._lists.get(trait)
        if found is None:
            found = {key: entry for key, entry in self._entries.items() if entry.has(trait)}
            if len(self._lists) < _MOST_LISTS:
                self._lists[trait] = found
        return _snapshots(found)

    def graves(self) -> SnapshotMap:
        """Only what was removed: where a reading of the same topic from its start begins."""
        return SnapshotMap(buried=self._buried)


def _snapshots(entries: Mapping[bytes, Entry]) -> tuple[ModelRegistrationSnapshot, ...]:
    return tuple([entry.snapshot() for entry in entries.values()])


class Draft:
    """The next map while records are folded into it; the one it comes from stays as it is."""

    def __init__(self, base: SnapshotMap, domain: str) -> None:
        self._base = base
        self._domain = domain
        self._entries = base._entries
        self._buried = base._buried
        self._lists = base._lists.copy()  # readers may go on adding to the other
        self._touched: set[bytes] = set()
        self._is_own = False

    def put(self, key: bytes | None, value: bytes) -> bool:
        """Fold a snapshot in; whether it was newer. Raises if it is no snapshot of the entity."""
        # Calls are spared here: this is the loop that a load consists of.
        if key is None or key.translate(_SHAPES) != _UUID_SHAPE:
            raise MalformedSnapshotError(_NO_KEY)
        found = _checked(value)
        if found is None:
            entry = _modelled_entry(key, value, self._domain)
        elif found.entity_id.encode() == key and found.domain == self._domain:
            entry = Entry(value, found.snapshot_version, found.current_state, found.node_type)
        else:
            raise _misplaced(found.entity_id, key, self._domain)
        known = self._entries.get(key)
        if entry.version <= (known.version if known else self._buried.get(key, 0)):
            return False
        if not self._is_own:
            self._own()
        self._entries[key] = entry
        if self._buried:
            self._buried.pop(key, None)
        if self._lists:
            self._touched.add(key)
        return True

    def bury(self, key: bytes | None, version: int | None) -> bool:
        """Fold a tombstone in; whether it changed anything."""
        if key is None or key.translate(_SHAPES) != _UUID_SHAPE:
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
        return SnapshotMap(self._entries, self._buried, lists)

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


class _Capabilities(msgspec.Struct, gc=False):
    supported_operations: tuple[str, ...] = ()
    protocols: tuple[str, ...] = ()
    max_concurrent_requests: Annotated[int, msgspec.Meta(ge=0)] | None = None


class _Checked(msgspec.Struct, gc=False):
    """The model's rules for texts as the publisher writes them; the model judges all others."""

    entity_id: str
    current_state: EnumRegistrationState
    last_state_change_at: _Instant
    snapshot_version: Annotated[int, msgspec.Meta(ge=1)]
    snapshot_created_at: _Instant
    domain: str
    tenant: str | None = None
    node_type: EnumNodeType | None = None
    node_name: str | None = None
    capabilities: _Capabilities | None = None
    source_projection_sequence: int | None = None


_check = msgspec.json.Decoder(_Checked).decode


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


def _checked(value: bytes) -> _Checked | None:
    """The fields of a text that the model is sure to take; None if that must be tried.

    `_check` skips what it does not need, and in there the model may find broken characters, numbers
    of thousands of digits or hundreds of brackets. In a short text there is no room for the last
    two, beside what every snapshot has.
    """
    try:
        if not value.isascii():
            value.decode()
        if len(value) <= _SHORT or _is_harmless(value):
            return _check(value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    return None


def _is_harmless(value: bytes) -> bool:
    return len(value) < 4096 and value.count(b"[") + value.count(b"{") < 100


def _modelled(value: bytes) -> ModelRegistrationSnapshot:
    try:
        return ModelRegistrationSnapshot.model_validate_json(value)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the value"
        raise MalformedSnapshotError(f"{where}: {first['msg']}") from None
