"""Parked records as dead letters: found, named, settled. A row stays whatever becomes of it.

A letter waits until it is replayed or purged. A replayed one is submitted to the inbox, and the cut
that takes it into the log notes in its own transaction how it got there.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from math import inf
from typing import Any, NamedTuple
from uuid import UUID

from onex_platform.base.errors import ConfigurationError
from onex_platform.base.faults import effect
from onex_platform.context import PlatformContext
from onex_platform.domain.envelope import EnumParkReason
from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.intake import RawRecord, is_ledgered
from onex_platform.engines.postgres.database import Cursor

_PLACE = 'topic, partition, generation, "offset"'
_COLUMNS = (
    f"{_PLACE}, kind, reason, detail, record_timestamp, append_time, legacy, key, value,"
    " header_names, header_values, parked_at, outcome, event_id, settled_at, settled_by,"
    " settled_because, published_at"
)
# Asking for a length reads no value.
_BYTES = """
    coalesce(octet_length(key), 0) + coalesce(octet_length(value), 0)
    + coalesce((SELECT sum(octet_length(held)) FROM unnest(header_values) AS held), 0)"""
_CHOSEN = """
    domain = %(domain)s
    AND (%(topic)s::text IS NULL OR topic = %(topic)s)
    AND (%(reason)s::text IS NULL OR reason = %(reason)s)
    AND (%(older)s::timestamptz IS NULL OR parked_at < %(older)s)
    AND (%(any_state)s OR coalesce(outcome, 'waiting') = %(state)s)
    AND (%(topics)s::text[] IS NULL OR (topic, partition, generation, "offset") IN (
        SELECT * FROM unnest(
            %(topics)s::text[], %(partitions)s::integer[], %(generations)s::integer[],
            %(offsets)s::bigint[]
        )
    ))"""
_AT_ONCE = 100
_NAME = re.compile(r"([a-zA-Z0-9._-]+)/(\d{1,9})/(\d{1,18})(?:/(\d{1,9}))?")
_LEDGERED = [kind.value for kind in EnumEventKind if is_ledgered(kind)]


class EnumLetterState(StrEnum):
    """What became of a letter."""

    WAITING = "waiting"  # for somebody to replay or to purge it
    SUBMITTED = "submitted"  # the next cut takes it into the log
    ENTERED = "entered"  # its event is in the log
    DUPLICATE = "duplicate"  # its event had been in the log before
    PURGED = "purged"  # its bytes are gone, by somebody's order


class LetterId(NamedTuple):
    """Where a record was read: in the topic's partition, which may have begun anew since."""

    topic: str
    partition: int
    generation: int
    offset: int

    def __str__(self) -> str:
        place = f"{self.topic}/{self.partition}/{self.offset}"
        return f"{place}/{self.generation}" if self.generation else place

    @classmethod
    def parse(cls, text: str) -> LetterId:
        if (match := _NAME.fullmatch(text)) is None:
            raise ConfigurationError(
                f"{text!r} names no dead letter.",
                hint="Write TOPIC/PARTITION/OFFSET, as `onex dlt list` prints it.",
            )
        topic, partition, offset, generation = match.groups()
        return cls(topic, int(partition), int(generation or 0), int(offset))


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A parked record, with every byte of it as long as it is not purged."""

    id: LetterId
    kind: EnumEventKind
    reason: str
    detail: str
    record_timestamp: datetime | None
    append_time: bool
    legacy: bool
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    parked_at: datetime
    state: EnumLetterState
    event_id: UUID | None
    settled_at: datetime | None
    settled_by: str | None
    settled_because: str | None
    published_at: datetime | None

    def as_record(self) -> RawRecord:
        """The record as it was read, for whoever reads it again."""
        return RawRecord(
            topic=self.id.topic,
            partition=self.id.partition,
            offset=self.id.offset,
            timestamp=self.record_timestamp,
            append_time=self.append_time,
            key=self.key,
            value=self.value,
            headers=self.headers,
            kind=self.kind,
            legacy=self.legacy,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterFilter:
    """Which letters are meant: all that every given field fits."""

    ids: tuple[LetterId, ...] | None = None
    topic: str | None = None
    reason: EnumParkReason | None = None
    older_than: timedelta | None = None
    state: EnumLetterState | None = EnumLetterState.WAITING  # None: any

    def parameters(self, domain: str, now: datetime) -> dict[str, Any]:
        columns: list[list[Any] | None] = [None] * 4
        if self.ids is not None:
            columns = [[place[column] for place in self.ids] for column in range(4)]
        names = ("topics", "partitions", "generations", "offsets")
        return {
            "domain": domain,
            "topic": self.topic,
            "reason": self.reason,
            "older": None if self.older_than is None else now - self.older_than,
            "any_state": self.state is None,
            "state": self.state,
            **dict(zip(names, columns, strict=True)),
        }


def find_letters(
    cursor: Cursor,
    domain: str,
    wanted: LetterFilter,
    now: datetime,
    *,
    limit: int,
    after: LetterId | None = None,
    lock: bool = False,
) -> list[Letter]:
    """Letters in the order of their places, beginning behind `after`.

    With `lock`, nobody else settles them before the transaction ends.
    """
    last = after or LetterId("", 0, 0, 0)
    rows = cursor.execute(
        f"SELECT {_COLUMNS} FROM parked_records WHERE {_CHOSEN}"  # noqa: S608 - constants
        f" AND ({_PLACE}) > (%(after_topic)s, %(after_partition)s, %(after_generation)s,"
        f" %(after_offset)s) ORDER BY {_PLACE} LIMIT %(limit)s {'FOR UPDATE' if lock else ''}",
        {
            **wanted.parameters(domain, now),
            **{f"after_{name}": value for name, value in last._asdict().items()},
            "limit": limit,
        },
    )
    return [_letter(row) for row in rows]


def submit_letters(
    cursor: Cursor, domain: str, letters: Sequence[tuple[LetterId, UUID, EnumLetterState]], by: str
) -> None:
    """Note letters that were replayed: the event that each became, submitted or a duplicate."""
    cursor.executemany(
        "UPDATE parked_records"  # noqa: S608 - constants
        " SET event_id = %s, outcome = %s, settled_at = now(), settled_by = %s"
        f" WHERE domain = %s AND ({_PLACE}) = (%s, %s, %s, %s)",
        [(event_id, state.value, by, domain, *place) for place, event_id, state in letters],
    )


def note_entered(cursor: Cursor, domain: str, batch_id: UUID, event_ids: Collection[UUID]) -> None:
    """Note of submitted letters that the cut which is being committed has taken them in.

    The cut stages the ids that are new to the ledger; one that it does not stage was there before.
    """
    if not event_ids:  # as with most cuts
        return
    cursor.execute(
        "UPDATE parked_records AS letter SET settled_at = now(), outcome = CASE"
        " WHEN fact.kind = ANY(%(ledgered)s) AND NOT EXISTS (SELECT FROM staged_ids AS staged"
        "  WHERE staged.batch_id = %(batch)s AND staged.event_id = letter.event_id)"
        " THEN 'duplicate' ELSE 'entered' END"
        " FROM fact_inbox AS fact"
        " WHERE letter.domain = %(domain)s AND letter.outcome = 'submitted'"
        " AND letter.event_id = ANY(%(ids)s)"
        " AND fact.domain = letter.domain AND fact.event_id = letter.event_id",
        {"domain": domain, "batch": batch_id, "ids": list(event_ids), "ledgered": _LEDGERED},
    )


def find_unpublished(
    cursor: Cursor, domain: str, topics: Collection[str], *, limit: int, most_bytes: int
) -> list[Letter]:
    """Letters of these topics that are not published yet, oldest first.

    They end with the one that exceeds so many bytes of what senders wrote, whatever the limit.
    """
    rows = cursor.execute(
        f"SELECT {_COLUMNS} FROM ("  # noqa: S608 - constants
        f" SELECT *, sum(bytes) OVER (ORDER BY parked_at, {_PLACE}) - bytes AS bytes_before FROM ("
        f" SELECT *, {_BYTES} AS bytes FROM parked_records"
        " WHERE domain = %s AND topic = ANY(%s) AND published_at IS NULL"
        " AND outcome IS DISTINCT FROM 'purged'"
        f" ORDER BY parked_at, {_PLACE} LIMIT %s) AS oldest) AS summed"
        f" WHERE bytes_before < %s ORDER BY parked_at, {_PLACE}",
        [domain, list(topics), limit, most_bytes],
    )
    return [_letter(row) for row in rows]


def note_published(cursor: Cursor, domain: str, letters: Sequence[Letter], now: datetime) -> None:
    """Note letters that the broker has acknowledged."""
    cursor.executemany(
        "UPDATE parked_records SET published_at = %s"  # noqa: S608 - constants
        f" WHERE domain = %s AND ({_PLACE}) = (%s, %s, %s, %s)",
        [(now, domain, *letter.id) for letter in letters],
    )


def each_letter(
    platform: PlatformContext, wanted: LetterFilter, now: datetime, limit: int | None = None
) -> Iterator[Letter]:
    """Letters in the order of their places, few at a time: each may be large."""
    after: LetterId | None = None
    left = inf if limit is None else limit
    while left > 0:
        some = int(min(_AT_ONCE, left))
        with platform.database.transaction() as cursor:
            found = find_letters(cursor, platform.domain, wanted, now, limit=some, after=after)
        yield from found
        if len(found) < some:
            return
        after, left = found[-1].id, left - some


def purge(
    platform: PlatformContext, wanted: LetterFilter, now: datetime, *, by: str, because: str
) -> int:
    """Destroy the bytes of waiting letters, for a reason that stays with them; how many."""
    if not because.strip():
        raise ConfigurationError(
            "The reason to purge is empty.", hint="Say why the records are not needed any more."
        )
    with effect("letters.purge"), platform.database.transaction() as cursor:
        cursor.execute(
            "UPDATE parked_records SET outcome = 'purged', key = NULL, value = NULL,"  # noqa: S608
            " header_names = '{}', header_values = '{}', settled_at = %(now)s, settled_by = %(by)s,"
            f" settled_because = %(because)s WHERE {_CHOSEN} AND outcome IS NULL",
            {
                **wanted.parameters(platform.domain, now),
                "now": now,
                "by": by,
                "because": because.strip(),
            },
        )
        return cursor.rowcount


def _letter(row: Any) -> Letter:
    fields = row._asdict()
    place = LetterId(*(fields.pop(name) for name in LetterId._fields))
    headers = zip(fields.pop("header_names"), fields.pop("header_values"), strict=True)
    moment = fields.pop("record_timestamp")
    return Letter(
        id=place,
        kind=EnumEventKind(fields.pop("kind")),
        record_timestamp=moment and moment.astimezone(UTC),
        headers=tuple(headers),
        state=EnumLetterState(fields.pop("outcome") or EnumLetterState.WAITING),
        **fields,
    )
