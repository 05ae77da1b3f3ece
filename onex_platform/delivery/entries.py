"""What stands in `rty` and `dlt`: entries, and how headers carry them. Pure.

An entry is the original record, byte for byte, with headers behind its own; the first of them is
`x-delivery`. So the record can be given back as it was, whatever headers it came with. Entries
without a record mark what became of a key.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from onex_platform.domain.headers import (
    ATTEMPT,
    FAILURE_CLASS,
    FAILURE_REASON,
    FIRST_SEEN,
    GROUP,
    LAST_SEEN,
    NEXT_AT,
    SOURCE_OFFSET,
    SOURCE_PARTITION,
    SOURCE_TOPIC,
    Headers,
)

KIND = "x-delivery"
_CLAIM = "x-delivery-claim"
_NUMBER = "x-delivery-number"
_LEADS = "x-delivery-leads"
_LETTER = "x-delivery-letter"
_SINCE = "x-delivery-since"
_SOURCE_TIMESTAMP = "x-source-timestamp"
_MOST_REASON = 1000  # characters of a failure's reason

# A record's key; records without one have no order, and each stands for itself by its offset.
Key = bytes | int


class EnumEntry(StrEnum):
    """The kinds of entries; all but the last two are written by the owner of the partition."""

    CLAIM = "claim"  # whoever wrote the last one owns the partition
    WAIT = "wait"  # a record waits, or waits anew
    DONE = "done"  # the key's records up to an offset are handled
    DEAD = "dead"  # the key's records up to an offset are dead letters
    ALIVE = "alive"  # the key is handled again
    LOST = "lost"  # the key stays dead: letters that a replay asked for are gone
    LETTER = "letter"  # in `dlt`: a record that no attempt could handle, or that came behind one
    REPLAY = "replay"  # an operator asks for the key's letters to be handled
    RELEASE = "release"  # an operator lets the key go on without them


class EnumFailure(StrEnum):
    """Why a record waits: `x-failure-class`."""

    TRANSIENT = "transient"
    PERMANENT = "permanent"
    FOLLOWER = "follower"  # it has not failed: an earlier record of its key has
    REPLAYED = "replayed"


class Record(NamedTuple):
    """A record of the source."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    topic: str
    partition: int
    offset: int
    timestamp_ms: int

    @property
    def size(self) -> int:
        own = len(self.key or b"") + len(self.value or b"")
        return own + sum(len(name) + len(value or b"") for name, value in self.headers)


class Attempts(NamedTuple):
    """How often a record failed, why it did last, and when it is due; times in Unix ms."""

    failures: int
    due: int
    first_seen: int
    last_seen: int
    failure: EnumFailure
    reason: str = ""


_NO_ATTEMPTS = Attempts(0, 0, 0, 0, EnumFailure.FOLLOWER)


@dataclass(frozen=True, slots=True)
class Entry:
    """One record of `rty` or `dlt`, as far as it concerns a group.

    `offset` is the source's: of the record, or the last one that the entry speaks of.
    """

    kind: EnumEntry
    key: Key
    offset: int = -1
    record: Record | None = field(default=None, repr=False)
    attempts: Attempts = _NO_ATTEMPTS
    claim: str = ""  # of a claim: who makes it
    epoch: int = -1  # the writer's claim, by its offset in `rty`
    number: int = -1  # the writer's count of its entries
    leads: bool = False  # all of the writer's entries before it have been read back
    letter: int = -1  # of a death, or a request about it: where its letters begin in `dlt`
    since: int = -1  # of a dead key: the first letter's offset in the source


def key_of(key: bytes | None, offset: int) -> Key:
    return offset if key is None else key


def shown(key: Key) -> str:
    """A key as people read and type it."""
    return f"#{key}" if isinstance(key, int) else key.decode("utf-8", "backslashreplace")


def encode(entry: Entry, group: str) -> list[tuple[str, str | bytes | None]]:
    """The entry's headers: the record's own, and ours behind them."""
    kept = entry.attempts
    ours: dict[str, str | int] = {
        KIND: entry.kind.value,
        GROUP: group,
        SOURCE_OFFSET: entry.offset,
        _CLAIM: entry.claim or entry.epoch,
        _NUMBER: entry.number,
        _LEADS: int(entry.leads),
    }
    if entry.letter >= 0:
        ours |= {_LETTER: entry.letter, _SINCE: entry.since}
    if entry.record is not None:
        ours |= {
            FAILURE_CLASS: kept.failure.value,
            FAILURE_REASON: kept.reason[:_MOST_REASON],
            ATTEMPT: kept.failures,
            FIRST_SEEN: kept.first_seen,
            LAST_SEEN: kept.last_seen,
            NEXT_AT: kept.due,
            SOURCE_TOPIC: entry.record.topic,
            SOURCE_PARTITION: entry.record.partition,
            _SOURCE_TIMESTAMP: entry.record.timestamp_ms,
        }
    own = () if entry.record is None else entry.record.headers
    return [*own, *((name, str(value).encode()) for name, value in ours.items())]


def decode(
    key: bytes | None,
    value: bytes | None,
    headers: Headers | None,
    group: str,
    mine: int | None = None,
) -> Entry | None:
    """The entry, if it is one of the group's; without its record if the reader wrote it itself.

    An entry whose numbers can't be read raises ValueError; a due time that can't is due at once.
    """
    begin = _begin_of_ours(headers or ())
    if headers is None or begin is None:
        return None
    ours = {name: (found or b"").decode(errors="replace") for name, found in headers[begin:]}
    if ours.get(GROUP) != group:
        return None
    kind = EnumEntry(ours[KIND])
    offset = int(ours.get(SOURCE_OFFSET, -1))
    claim = ours.get(_CLAIM, "-1")
    record = None
    attempts = _NO_ATTEMPTS
    if SOURCE_TOPIC in ours and claim != str(mine):
        record = Record(
            key,
            value,
            tuple(headers[:begin]),
            ours[SOURCE_TOPIC],
            int(ours[SOURCE_PARTITION]),
            offset,
            int(ours[_SOURCE_TIMESTAMP]),
        )
        attempts = Attempts(
            int(ours[ATTEMPT]),
            _due(ours.get(NEXT_AT, "")),
            int(ours[FIRST_SEEN]),
            int(ours[LAST_SEEN]),
            EnumFailure(ours[FAILURE_CLASS]),
            ours[FAILURE_REASON],
        )
    return Entry(
        kind,
        key_of(key, offset),
        offset,
        record,
        attempts,
        claim=claim if kind is EnumEntry.CLAIM else "",
        epoch=-1 if kind is EnumEntry.CLAIM else int(claim),
        number=int(ours.get(_NUMBER, -1)),
        leads=ours.get(_LEADS) == "1",
        letter=int(ours.get(_LETTER, -1)),
        since=int(ours.get(_SINCE, -1)),
    )


def group_of(headers: Headers | None) -> str | None:
    """The group whose entry a record is; None: it is nobody's."""
    begin = _begin_of_ours(headers or ())
    if headers is None or begin is None:
        return None
    named = [found or b"" for name, found in headers[begin:] if name == GROUP]
    return named[-1].decode(errors="replace") if named else None


def _begin_of_ours(headers: Headers) -> int | None:
    for place in reversed(range(len(headers))):
        if headers[place][0] == KIND:
            return place
    return None


def _due(text: str) -> int:
    try:
        return max(0, int(text))
    except ValueError:
        return 0
