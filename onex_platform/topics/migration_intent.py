"""What a topic's move to another name or version is meant to be: the file `migration.yaml` beside
the contract of the topic that is left.

Pure. How far a move has come is state, not intent, and stands in PostgreSQL (`migration`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from onex_platform.base.errors import ConfigurationError
from onex_platform.topics.contract import TopicContract
from onex_platform.topics.documents import Document, read_document
from onex_platform.topics.fields import Duration, FieldDefect, Part, explain
from onex_platform.topics.grammar import LegacyName

MIGRATION_FILE = "migration.yaml"
_SETTLE = timedelta(seconds=10)
_BOUND = frozenset({"rty", "dlt"})
_WEEK = timedelta(days=7)  # specification 002
_SUCCESSOR = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*-onex-v(?P<version>[1-9][0-9]*)")


class EnumMigrationPhase(StrEnum):
    """How far a topic's move has come, in order."""

    ASSESS = "assess"
    DUAL = "dual"
    MOVE = "move"
    FREEZE = "freeze"
    RETIRED = "retired"

    @property
    def writes_both(self) -> bool:
        """Whether producers write the source and the target alike."""
        return self in (EnumMigrationPhase.DUAL, EnumMigrationPhase.MOVE)

    @property
    def has_moved(self) -> bool:
        """Whether the target alone is written."""
        return self in (EnumMigrationPhase.FREEZE, EnumMigrationPhase.RETIRED)


class Lift(Part):
    """How a record's value becomes one of the other version: a table of fields, or a function.

    The table is about the payload of an envelope, or the value itself where there is none. The
    function is `package.module:name`, from bytes to bytes; it must keep the event's id.
    """

    rename: Mapping[str, str] = {}
    add: Mapping[str, Any] = {}
    drop: tuple[str, ...] = ()
    schema_version: int | None = Field(None, ge=1)
    function: str | None = Field(None, pattern=r"^\w+(\.\w+)*:\w+$")

    @model_validator(mode="after")
    def _is_one_of_the_two(self) -> Self:
        table = bool(self.rename or self.add or self.drop or self.schema_version)
        if table == (self.function is not None):
            raise ValueError("say either function or what happens to fields")
        return self

    def apply(self, value: bytes) -> bytes:
        """The value in the other version; what is no JSON object has no fields and stays."""
        if self.function is not None:
            return _function(self.function)(value)
        try:
            document = json.loads(value)
        except ValueError:
            return value
        if not isinstance(document, dict):
            return value
        inner = document.get("payload")
        if isinstance(inner, dict):
            document["payload"] = self._lifted(inner)
        else:
            document = self._lifted(document)
        if self.schema_version is not None:
            document["schema_version"] = self.schema_version
        return json.dumps(document, separators=(",", ":")).encode()

    def _lifted(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        kept = {
            self.rename.get(name, name): value
            for name, value in fields.items()
            if name not in self.drop
        }
        return {**self.add, **kept}


def _function(name: str) -> Callable[[bytes], bytes]:
    module, _, attribute = name.partition(":")
    try:
        found: Callable[[bytes], bytes] = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(
            f"function={name!r}: {error}.", hint=f"Mend it in {MIGRATION_FILE}; docs/migration.md."
        ) from None
    return found


class MigrationIntent(Part):
    """Where a topic's events move to, and what must be seen before each step."""

    to: str
    window: Duration  # in the last so long both sides must agree before readers move
    lasts: Duration = _WEEK  # the least time in which both are written
    settle: Duration = _SETTLE  # what is younger may still be on its way to the other side
    # `both`: each side has what the other has; `target`: newcomers write the target alone.
    complete: Literal["both", "target"] = "both"
    groups: Mapping[str, str] = {}  # the source's groups, and who follows each on the target
    left_behind: tuple[str, ...] = ()  # groups that nobody needs any more
    lag_records: int = Field(100, ge=0)  # how far a successor may be behind
    lift: Lift | None = None
    back: Lift | None = None


def read_intent(path: Path) -> MigrationIntent:
    """The intent in a file; a defect is named with file, field and value."""
    document = read_document(path)
    intent, defects = parse_intent(document)
    if intent is None:
        place = "/".join(path.parts[-5:])
        found = "; ".join(defect.message for defect in defects)
        raise ConfigurationError(
            f"Migration {place}: {found}.", hint=f"Mend {path}; docs/migration.md has the fields."
        )
    return intent


def parse_intent(document: Document) -> tuple[MigrationIntent | None, list[FieldDefect]]:
    """What the document says, or what is wrong with it."""
    if document.defects:
        return None, [FieldDefect((), defect.message) for defect in document.defects]
    try:
        return MigrationIntent.model_validate(document.data), []
    except ValidationError as error:
        return None, list(explain(error))


def intent_defects(
    source: TopicContract, intent: MigrationIntent, contracts: Mapping[str, TopicContract]
) -> Iterator[FieldDefect]:
    """Why a topic can't move as intended; each sentence names the field and its value."""
    target = contracts.get(intent.to)
    if target is None:
        yield FieldDefect(("to",), f"to={intent.to!r}: there is no such contract")
        return
    if not _leads_on(source, target):
        yield FieldDefect(
            ("to",),
            f"to={intent.to!r}: a legacy name moves to its twin, any other to a later version",
        )
        return
    yield from _namespace_defects(source, intent)
    if source.snapshot_of is not None:
        yield from _snapshot_defects(source, intent)
    if source.key != target.key:
        yield FieldDefect(("to",), f"to={intent.to!r}: its key is {target.key}, not {source.key}")
    for contract in (source, target):
        if contract.retention is not None and contract.retention < intent.window:
            yield FieldDefect(
                ("window",),
                f"window={intent.window}: {contract.topic} keeps records for {contract.retention}, "
                "and what has gone can't be compared",
            )
        # Signature and ciphertext are bound to the name of the record's topic.
        if contract.signed or contract.encryption != "none":
            bound = "signed" if contract.signed else "encrypted"
            yield FieldDefect(
                ("to",),
                f"to={intent.to!r}: records of {contract.topic} are {bound} for that topic alone, "
                "and no copy of them is valid on another",
            )
    if intent.complete == "target" and intent.groups:
        yield FieldDefect(
            ("complete",),
            "complete='target': a group can't be handed back to a source that lacks what newcomers "
            f"wrote; say both, or name no groups instead of {', '.join(intent.groups)}",
        )
    for field in ("lift", "back"):
        if (intent.lift is None) != (intent.back is None) and getattr(intent, field) is None:
            yield FieldDefect((field,), f"{field} is missing: a lift needs its way back")
    version = getattr(target.name, "version", None)
    for group, successor in intent.groups.items():
        match = _SUCCESSOR.fullmatch(successor)
        if match is None or int(match["version"]) != version or successor in intent.groups:
            yield FieldDefect(
                ("groups", group),
                f"groups.{group}={successor!r}: a successor is called <service>-onex-v{version}, "
                "as no group of the source is",
            )
    for group in intent.left_behind:
        if group in intent.groups:
            yield FieldDefect(("left_behind",), f"left_behind: {group!r} has a successor")


def _namespace_defects(source: TopicContract, intent: MigrationIntent) -> Iterator[FieldDefect]:
    """What binds topics of the namespace alone."""
    if source.stream_class in _BOUND:
        yield FieldDefect(
            ("to",),
            f"to={intent.to!r}: what stands in {source.topic} is about records of its source, by "
            "their offsets; it goes when its source does",
        )
    if source.stream_class is not None and source.is_compacted:
        yield FieldDefect(
            ("to",),
            f"to={intent.to!r}: {source.topic} is compacted, and events that compaction has taken "
            "can't be compared",
        )
    if source.stream_class is not None and not source.bridge and intent.lift is not None:
        for field in ("lift", "back"):
            lift = getattr(intent, field)
            if lift is not None and lift.function is None:
                yield FieldDefect(
                    (field,),
                    f"{field} is a table, which is for JSON; records of {source.topic} are Avro or "
                    "Protobuf, so say function",
                )


def _snapshot_defects(source: TopicContract, intent: MigrationIntent) -> Iterator[FieldDefect]:
    """The registry alone writes both sides, from its rows, and readers load them whole."""
    for field in ("lift", "back", "groups"):
        if getattr(intent, field):
            yield FieldDefect(
                (field,),
                f"{field} does not go with {source.topic}: both sides are written from rows, and "
                "readers load the target whole",
            )


def _leads_on(source: TopicContract, target: TopicContract) -> bool:
    name, other = source.name, target.name
    if isinstance(name, LegacyName):
        return source.legacy_of == target.topic
    if not isinstance(other, type(name)):
        return False
    return name.version < other.version and replace(name, version=other.version) == other
