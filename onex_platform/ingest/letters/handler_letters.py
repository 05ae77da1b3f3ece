"""Dead letters of handlers, counted beside the log's own: how many wait, what became of the others.

`dlt` says what was given up, `rty` which keys are dead now and what operators asked for. Both are
read on from where the last reading ended. The letters stay in Kafka; PostgreSQL has their places.

A letter waits while its key is dead of that death. It is settled when the key is no longer dead, by
what was asked for. If `rty` has lost the key's mark and nobody had asked, the letter waits until
`dlt` has deleted it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import NamedTuple

from confluent_kafka import Message

from onex_platform.base.errors import InfraError
from onex_platform.base.faults import effect
from onex_platform.base.settings import Settings
from onex_platform.base.telemetry import get_logger
from onex_platform.context import PlatformContext
from onex_platform.delivery.config import DeliveryConfig, broker_names
from onex_platform.delivery.entries import Entry, EnumEntry, group_of
from onex_platform.delivery.letters import ParkedKey, entry_of, parked_keys, read_partition
from onex_platform.engines.kafka.topic_admin import describe, topic_names
from onex_platform.engines.postgres.database import Cursor
from onex_platform.ingest.letters.letter_report import LetterCounts
from onex_platform.topics.catalogue import Catalogue
from onex_platform.topics.policy import load_policy

_AT_ONCE = 1000
# Whether a letter belongs to one of the keys that are dead now, or waits again and is not settled.
_OF_A_KEY = """
    parked.partition = letters.partition AND letters.place >= parked.place
    AND (parked.key = letters.key
         OR letters.key IS NULL AND parked.source_offset = letters.source_offset)"""
_PARKED = """
    unnest(%(partitions)s::integer[], %(keys)s::bytea[], %(offsets)s::bigint[],
           %(places)s::bigint[], %(asked)s::text[])
    AS parked (partition, key, source_offset, place, asked)"""


class HandledTopic(NamedTuple):
    """A source whose handlers may fail: as contracts call it, and as the broker does."""

    name: str
    config: DeliveryConfig
    kept: timedelta  # how long `dlt` keeps a letter


class _Found(NamedTuple):
    """An entry of whatever group, where it was read."""

    group: str
    partition: int
    place: int
    written: datetime
    entry: Entry


class _Budget:
    """How much one reading may take; what is left is for the next."""

    def __init__(self, records: int, seconds: float) -> None:
        self._records = records
        self._ends_at = time.monotonic() + seconds

    @property
    def is_spent(self) -> bool:
        return self._records <= 0 or time.monotonic() >= self._ends_at

    def next_records(self) -> int:
        """How many may be read at once."""
        return 0 if self.is_spent else min(_AT_ONCE, self._records)

    def spend(self, records: int) -> None:
        self._records -= records


def handled_topics(settings: Settings, catalogue: Catalogue) -> list[HandledTopic]:
    """The sources whose contracts let records wait, and give them up."""
    naming = broker_names(settings, load_policy().home)
    return [
        HandledTopic(
            contract.topic,
            DeliveryConfig.from_contract(contract, "", naming),
            catalogue[contract.dead_letters].longest_stay or timedelta.max,
        )
        for contract in catalogue
        if contract.retry is not None and contract.dead_letters is not None
    ]


def follow_handlers(
    platform: PlatformContext,
    topics: Sequence[HandledTopic],
    now: datetime,
    *,
    most: int = 50_000,
    seconds: float = 60.0,
) -> bool:
    """Take in what is new of handlers' dead letters; False if some is left for the next time."""
    budget = _Budget(most, seconds)
    there = topic_names(platform.kafka.admin())
    topics = [t for t in topics if {t.config.dead_letters, t.config.retry} <= there]
    is_whole = True
    for topic in topics:
        is_whole &= _read_on(platform, topic, topic.config.dead_letters, budget)
        # In this order: whatever ended a death was asked for before it ended.
        parked = {group: _parked(platform, topic, group) for group in _open_groups(platform, topic)}
        if not _read_on(platform, topic, topic.config.retry, budget):
            return False
        for group, keys in parked.items():
            if keys is not None:
                _settle(platform, topic, group, keys, now)
    return is_whole


def count_handler_letters(cursor: Cursor) -> list[LetterCounts]:
    """All letters of handlers, by topic and group, as the log's own letters are counted."""
    rows = cursor.execute(
        "SELECT topic, 'handler of ' || consumer_group,"
        " count(*) FILTER (WHERE outcome IS NULL AND asked IS NULL) AS waiting,"
        " count(*) FILTER (WHERE outcome IS NULL AND asked IS NOT NULL) AS submitted,"
        " count(*) FILTER (WHERE outcome = 'replayed') AS entered,"
        " 0 AS duplicate,"
        " count(*) FILTER (WHERE outcome IN ('released', 'lost')) AS purged,"
        " 0 AS unpublished,"
        " min(buried_at) FILTER (WHERE outcome IS NULL AND asked IS NULL) AS oldest_waiting"
        " FROM handler_letters GROUP BY topic, consumer_group ORDER BY topic, consumer_group"
    )
    return [LetterCounts(*row) for row in rows]


def _read_on(platform: PlatformContext, topic: HandledTopic, name: str, budget: _Budget) -> bool:
    """Read a topic from where the last reading ended, some records per transaction; False if the
    budget did not last to its end."""
    layout = describe(platform.kafka.admin(), [name])[name]
    with platform.database.transaction() as cursor:
        rows = cursor.execute(
            "SELECT partition, next_offset FROM handler_letter_positions WHERE topic = %s", [name]
        )
        positions = dict(rows.fetchall())
    for partition in range(layout.partitions):
        messages = read_partition(platform.settings, name, partition, positions.get(partition, 0))
        with closing(messages):
            # Each is let go of when it is read: a letter may have megabytes.
            while batch := [_seen(m) for m in islice(messages, budget.next_records())]:
                budget.spend(len(batch))
                found = [entry for _, entry in batch if entry is not None]
                with effect("letters.follow"), platform.database.transaction() as cursor:
                    _note_letters(cursor, topic.name, found)
                    _note_requests(cursor, topic.name, found)
                    cursor.execute(
                        "INSERT INTO handler_letter_positions (topic, partition, next_offset)"
                        " VALUES (%s, %s, %s) ON CONFLICT (topic, partition)"
                        " DO UPDATE SET next_offset = excluded.next_offset",
                        [name, partition, batch[-1][0] + 1],
                    )
        if budget.is_spent:
            return False
    return True


def _seen(message: Message) -> tuple[int, _Found | None]:
    """A record's place, and what it says if it is an entry of whatever group."""
    place = message.offset() or 0
    group = group_of(message.headers())  # type: ignore[arg-type]
    entry = None if group is None else entry_of(message, group)
    if group is None or entry is None:
        return place, None
    written = datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC)
    found = _Found(group, message.partition() or 0, place, written, replace(entry, record=None))
    return place, found


def _note_letters(cursor: Cursor, topic: str, found: Sequence[_Found]) -> None:
    """One that is read again changes nothing; one whose key died again waits again."""
    cursor.executemany(
        "INSERT INTO handler_letters"
        " (topic, consumer_group, partition, source_offset, key, place, buried_at)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s)"
        " ON CONFLICT (topic, consumer_group, partition, source_offset) DO UPDATE"
        " SET key = excluded.key, place = excluded.place, buried_at = excluded.buried_at,"
        " asked = NULL, outcome = NULL, settled_at = NULL"
        " WHERE (handler_letters.buried_at, handler_letters.place)"
        " < (excluded.buried_at, excluded.place)",
        [
            (topic, f.group, f.partition, f.entry.offset, _key(f.entry.key), f.place, f.written)
            for f in found
            if f.entry.kind is EnumEntry.LETTER
        ],
    )


def _note_requests(cursor: Cursor, topic: str, found: Sequence[_Found]) -> None:
    cursor.executemany(
        "UPDATE handler_letters SET asked = %s WHERE topic = %s AND consumer_group = %s"
        " AND partition = %s AND place >= %s AND outcome IS NULL"
        " AND (key = %s OR key IS NULL AND source_offset = %s)",
        [
            (
                *(f.entry.kind.value, topic, f.group, f.partition, f.entry.letter),
                *(_key(f.entry.key), f.entry.offset),
            )
            for f in found
            if f.entry.kind in (EnumEntry.REPLAY, EnumEntry.RELEASE)
        ],
    )


def _open_groups(platform: PlatformContext, topic: HandledTopic) -> list[str]:
    with platform.database.transaction() as cursor:
        rows = cursor.execute(
            "SELECT DISTINCT consumer_group FROM handler_letters"
            " WHERE topic = %s AND outcome IS NULL",
            [topic.name],
        )
        return [group for (group,) in rows]


def _parked(platform: PlatformContext, topic: HandledTopic, group: str) -> list[ParkedKey] | None:
    """The group's keys that wait or are dead now; None if the broker does not say."""
    config = replace(topic.config, group=group)
    try:
        return parked_keys(platform.settings, config, time.time_ns() // 1_000_000)
    except InfraError as error:
        get_logger(__name__).warning("letters.group_not_read", group=group, error=error)
        return None


def _settle(
    platform: PlatformContext,
    topic: HandledTopic,
    group: str,
    parked: Sequence[ParkedKey],
    now: datetime,
) -> None:
    """Note what became of letters whose key is no longer dead, and what the others wait for."""
    parameters = {
        "topic": topic.name,
        "group": group,
        "now": now,
        "deleted": now - min(topic.kept, now - datetime.min.replace(tzinfo=UTC)),
        "partitions": [key.partition for key in parked],
        "keys": [_key(key.key) for key in parked],
        "offsets": [key.key if isinstance(key.key, int) else -1 for key in parked],
        # While records of a key wait, none of its letters is settled.
        "places": [-1 if key.dead is None else key.dead.letter for key in parked],
        "asked": [None if key.asked is None else key.asked.value for key in parked],
    }
    mine = "letters.topic = %(topic)s AND consumer_group = %(group)s AND outcome IS NULL"
    with effect("letters.settle"), platform.database.transaction() as cursor:
        cursor.execute(
            f"UPDATE handler_letters AS letters SET asked = parked.asked FROM {_PARKED}"  # noqa: S608 - constants
            f" WHERE {mine} AND parked.place >= 0 AND {_OF_A_KEY}"
            " AND letters.asked IS DISTINCT FROM parked.asked",
            parameters,
        )
        cursor.execute(
            "UPDATE handler_letters AS letters SET settled_at = %(now)s, outcome = CASE asked"  # noqa: S608 - constants
            " WHEN 'replay' THEN 'replayed' WHEN 'release' THEN 'released' ELSE 'lost' END"
            f" WHERE {mine} AND (asked IS NOT NULL OR buried_at < %(deleted)s)"
            f" AND NOT EXISTS (SELECT FROM {_PARKED} WHERE {_OF_A_KEY})",
            parameters,
        )


def _key(key: bytes | int) -> bytes | None:
    return key if isinstance(key, bytes) else None
