"""Samples at work: sent to topics, and awaited by every group that reads there.

A sample is noted after the broker has it: whoever is killed in between sends one more, and the
groups pass both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from onex_platform.base.errors import OnexError
from onex_platform.base.faults import effect
from onex_platform.base.telemetry import get_logger
from onex_platform.context import PlatformContext
from onex_platform.engines.kafka.clients import KafkaAdmin
from onex_platform.engines.kafka.group_offsets import committed, end_offsets, member_count
from onex_platform.engines.kafka.sender import Appended, send_one
from onex_platform.engines.kafka.topic_admin import topic_names
from onex_platform.engines.kafka.usage import reading_groups
from onex_platform.engines.postgres.database import Cursor
from onex_platform.health.canaries.contract_samples import (
    SampledTopic,
    sample_record,
    sampled_topics,
)
from onex_platform.health.canaries.group_rules import (
    Awaited,
    GroupLook,
    GroupState,
    Sample,
    is_broken,
    is_named,
    is_own,
    is_sample_due,
    judged,
)
from onex_platform.health.canaries.troubles import Trouble
from onex_platform.migration.phase_table import migrated_groups
from onex_platform.topics.catalogue import Catalogue
from onex_platform.topics.signals import impatient_producer


class Readers(NamedTuple):
    """What a look at the sampled topics found."""

    states: tuple[GroupState, ...]
    unnamed: tuple[tuple[str, str], ...]  # topic and group


def last_samples(cursor: Cursor) -> dict[str, Sample]:
    """The last sample of each topic."""
    rows = cursor.execute("SELECT topic, partition, record_offset, sent_at FROM canary_samples")
    return {row.topic: Sample(*row) for row in rows}


def known_groups(cursor: Cursor) -> dict[tuple[str, str], Awaited | None]:
    """Groups that were seen in a topic, and what each waits for."""
    rows = cursor.execute(
        "SELECT topic, group_name, partition, record_offset, waiting_since FROM canary_groups"
    )
    return {
        (row.topic, row.group_name): None
        if row.partition is None
        else Awaited(row.partition, row.record_offset, row.waiting_since)
        for row in rows
    }


def forget_group(cursor: Cursor, group: str) -> int:
    """Await nothing of a group any more, until it is seen again; in how many topics it was."""
    cursor.execute("DELETE FROM canary_groups WHERE group_name = %s", [group])
    return cursor.rowcount


def present_topics(platform: PlatformContext, catalogue: Catalogue) -> list[SampledTopic]:
    """The sampled topics that the cluster has."""
    there = topic_names(platform.kafka.admin())
    return [to for to in sampled_topics(platform.settings, catalogue) if to.topic in there]


def send_samples(
    platform: PlatformContext, topics: Iterable[SampledTopic], now: datetime
) -> dict[str, Appended]:
    """A sample to every topic that is due for one; where they stand, by topic.

    A topic that takes none is logged and left out: it costs no other topic its sample.
    """
    period = timedelta(seconds=platform.settings.canary.period_seconds)
    with platform.database.transaction() as cursor:
        last = last_samples(cursor)
    due = [to for to in topics if is_sample_due(last.get(to.topic), now, period)]
    sent = {}
    for to in due:
        try:
            sent[to.topic] = _sent(platform, to, last.get(to.topic), now)
        except OnexError as error:
            get_logger(__name__).warning("canaries.no_sample", topic=to.topic, error=error)
    return sent


def look_at_groups(
    platform: PlatformContext, topics: Collection[SampledTopic], now: datetime
) -> Readers:
    """How far each group is; nothing is noted."""
    with platform.database.transaction() as cursor:
        samples, known = last_samples(cursor), known_groups(cursor)
        handed = {to.topic: migrated_groups(cursor, to.contract.topic) for to in topics}
    admin, states, unnamed = platform.kafka.admin(), list[GroupState](), list[tuple[str, str]]()
    readers = reading_groups(admin, {to.topic for to in topics})
    for to in topics:
        seen = {group for topic, group in known if topic == to.topic}
        for group in sorted((readers[to.topic] | seen) - handed[to.topic].keys()):
            if is_named(group, to.contract.consumers):
                found = _look(admin, to.topic, group)
                before = known.get((to.topic, group))
                states.append(judged(found, before, samples.get(to.topic)))
            elif not is_own(group):
                unnamed.append((to.topic, group))
    return Readers(tuple(states), tuple(unnamed))


def note_groups(platform: PlatformContext, states: Iterable[GroupState], now: datetime) -> None:
    """Remember what each group waits for."""
    with effect("canaries.note_groups"), platform.database.transaction() as cursor:
        for look, awaited in ((state.look, state.awaited) for state in states):
            place = (None,) * 3 if awaited is None else _place(awaited)
            cursor.execute(
                "INSERT INTO canary_groups (topic, group_name, partition, record_offset,"
                " waiting_since, lag, members, looked_at) VALUES (%s, %s, %s, %s, %s, %s, %s, %s)"
                " ON CONFLICT (topic, group_name) DO UPDATE SET partition = excluded.partition,"
                " record_offset = excluded.record_offset, waiting_since = excluded.waiting_since,"
                " lag = excluded.lag, members = excluded.members, looked_at = excluded.looked_at",
                [look.topic, look.group, *place, look.lag, look.members, now],
            )


def broken_groups(
    states: Iterable[GroupState], now: datetime, period: timedelta
) -> Iterator[Trouble]:
    """The groups that don't read on, as they are told."""
    for state in states:
        if is_broken(state, now, period):
            look, seconds = state.look, round(state.waits(now).total_seconds())
            who = f"{look.members} members" if look.members else "no members"
            yield Trouble(
                f"group {look.group} in {look.topic}",
                f"Group {look.group} has not read {look.topic} for {seconds} s: "
                f"{look.lag} records behind, {who}.",
                {
                    "topic": look.topic,
                    "group": look.group,
                    "seconds": seconds,
                    "lag": look.lag,
                    "members": look.members,
                },
            )


def _sent(
    platform: PlatformContext, to: SampledTopic, last: Sample | None, now: datetime
) -> Appended:
    event_id = uuid4()
    partition = 0 if last is None else (last.partition + 1) % to.contract.partitions
    record = sample_record(platform.settings, to, event_id, now, partition)
    with effect("canaries.sample"), impatient_producer(platform.settings) as producer:
        appended = send_one(producer, record)
    with effect("canaries.note_sample"):
        _note_sample(platform, to.topic, event_id, appended, now)
    return appended


def _note_sample(
    platform: PlatformContext, topic: str, event_id: UUID, at: Appended, now: datetime
) -> None:
    with platform.database.transaction() as cursor:
        cursor.execute(
            "INSERT INTO canary_samples (topic, event_id, partition, record_offset, sent_at)"
            " VALUES (%s, %s, %s, %s, %s) ON CONFLICT (topic) DO UPDATE"
            " SET event_id = excluded.event_id, partition = excluded.partition,"
            " record_offset = excluded.record_offset, sent_at = excluded.sent_at",
            [topic, event_id, at.partition, at.offset, now],
        )


def _look(admin: KafkaAdmin, topic: str, group: str) -> GroupLook:
    read = {partition: at for (_, partition), at in committed(admin, group, topic).items()}
    ends: Mapping[Any, int] = end_offsets(admin, topic)
    lag = sum(max(0, end - read.get(partition, 0)) for (_, partition), end in ends.items())
    return GroupLook(topic, group, read, lag, member_count(admin, group))


def _place(awaited: Awaited) -> tuple[int, int, datetime]:
    return awaited.partition, awaited.offset, awaited.since
