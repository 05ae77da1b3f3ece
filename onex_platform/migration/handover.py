"""Hands a group's work to its successor on the other topic: nothing skipped, as little as possible
read twice.

The successor's place is found by time: in each partition, records that are older than the oldest
unread one of the old group (less the time in which the two sides may differ) are behind it. From
there on events decide: the successor begins with the first one that the old group has not done. It
is never put past an unread event, and never back before the time from which the old group reads.

Neither group may have members: a consumer that is at work commits over what was set.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, cast

from onex_platform.base.errors import ConfigurationError, InfraError
from onex_platform.base.faults import effect
from onex_platform.base.settings import Settings
from onex_platform.base.telemetry import shortened
from onex_platform.delivery.config import DeliveryConfig
from onex_platform.delivery.consumer import wall_clock
from onex_platform.delivery.letters import parked_keys
from onex_platform.engines.kafka.clients import KafkaAdmin, Positions, open_admin, read_to_end
from onex_platform.engines.kafka.group_offsets import (
    commit_for,
    committed,
    end_offsets,
    first_offsets,
    member_count,
    offsets_at,
)
from onex_platform.engines.kafka.topic_admin import topic_names
from onex_platform.migration.mirror import id_of, place_of


class Party(NamedTuple):
    """A group and the topic that it reads."""

    group: str
    topic: str


@dataclass(frozen=True)
class Handover:
    """Where the leaving group stopped, and where the following one goes on."""

    leaving: Party
    following: Party
    stopped_at: Positions
    begins_at: Positions
    unread: int  # events that the leaving group has not done
    repeated: int  # events that it has done, and the following one does again


class Record(NamedTuple):
    """A record of the topic that the successor reads."""

    place: tuple[str, int]
    offset: int
    event_id: str


def begins(
    records: Iterable[Record], done: Collection[str], starts: Positions, ends: Positions
) -> Positions:
    """In each partition the first record whose event is not done; its end if all are.

    Pure. `records` are those from `starts` to `ends`, in order within a partition.
    """
    found = Positions()
    for record in records:
        if record.event_id not in done:
            found.setdefault(record.place, record.offset)
    return {place: found.get(place, max(end, starts[place])) for place, end in ends.items()}


def plan_handover(
    settings: Settings, leaving: Party, following: Party, settle: timedelta
) -> Handover:
    """Where the following group must begin; asks, and changes nothing."""
    with open_admin(settings) as admin:
        for party in (leaving, following):
            _require_no_members(admin, party.group)
        first = first_offsets(admin, leaving.topic)
        position = committed(admin, leaving.group, leaving.topic)
        # Where it has committed nothing, it would begin with the oldest record.
        stopped = {place: max(position.get(place, 0), oldest) for place, oldest in first.items()}
    unread, oldest_unread = _unread(settings, leaving.topic, stopped)
    for since in (oldest_unread - settle, datetime.fromtimestamp(0, UTC)):
        plan = _plan_since(settings, leaving, following, stopped, unread, since)
        if plan is not None:
            return plan
    raise AssertionError  # the last attempt gives a plan or says what is missing


def hand_over(settings: Settings, plan: Handover) -> None:
    """Set the following group, and make sure that the broker says so."""
    with open_admin(settings) as admin:
        for party in (plan.leaving, plan.following):
            _require_no_members(admin, party.group)
        with effect("migration.set_offsets"):
            commit_for(admin, plan.following.group, plan.begins_at)
        found = committed(admin, plan.following.group, plan.following.topic)
    if found != plan.begins_at:
        raise InfraError(
            f"Group {plan.following.group} is at {_shown(found)}, not at "
            f"{_shown(plan.begins_at)}: somebody else set it.",
            hint="Stop its consumers, then hand over again.",
        )


def require_nothing_waits(settings: Settings, delivery: DeliveryConfig) -> None:
    """Refuse to hand over while keys of the leaving group wait or are dead: their records are
    committed on its topic, stand in `rty` and `dlt` of that topic, and the following group reads
    others."""
    with open_admin(settings) as admin:
        if not {delivery.retry, delivery.dead_letters} <= topic_names(admin):
            return  # nobody of the group has ever let a record wait
    if parked := parked_keys(settings, delivery, wall_clock()):
        keys = shortened(sorted(key.name for key in parked))
        raise ConfigurationError(
            f"{len(parked)} keys of {delivery.group} wait in {delivery.retry} or are dead: {keys}.",
            hint="Let its consumers handle them first; `onex delivery replay` and `release` "
            "decide about dead ones.",
        )


def _unread(settings: Settings, topic: str, stopped: Positions) -> tuple[set[str], datetime]:
    """The events that the group has not done, and the time of the oldest."""
    unread, oldest = set[str](), datetime.now(UTC)
    for message in read_to_end(settings, [topic], stopped):
        unread.add(id_of(message))
        oldest = min(oldest, datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC))
    return unread, oldest


def _plan_since(
    settings: Settings,
    leaving: Party,
    following: Party,
    stopped: Positions,
    unread: Collection[str],
    since: datetime,
) -> Handover | None:
    """The plan if every unread event lies behind that time on the other topic; None if not, unless
    there is no earlier time to begin with."""
    whole = since.timestamp() == 0
    with open_admin(settings) as admin:
        if whole:
            starts = first_offsets(admin, following.topic)
            before = first_offsets(admin, leaving.topic)
        else:
            starts = offsets_at(admin, following.topic, since)
            before = offsets_at(admin, leaving.topic, since)
        ends = end_offsets(admin, following.topic)
    # An id that is there twice, once before and once behind the old group's place, is not done.
    done = {
        id_of(message) for message in read_to_end(settings, [leaving.topic], before, dict(stopped))
    } - set(unread)
    records = [
        Record(place_of(message), cast("int", message.offset()), id_of(message))
        for message in read_to_end(settings, [following.topic], starts, dict(ends))
    ]
    lacking = set(unread) - {record.event_id for record in records}
    if lacking and not whole:
        return None
    if lacking:
        raise InfraError(
            f"{following.topic} lacks {len(lacking)} events that {leaving.group} has not read: "
            f"{shortened(sorted(lacking))}.",
            hint="Let the mirror catch up (`onex migrate mirror`), or let the group read on.",
        )
    places = begins(records, done, starts, ends)
    repeated = sum(
        record.event_id in done for record in records if record.offset >= places[record.place]
    )
    return Handover(leaving, following, stopped, places, len(unread), repeated)


def _require_no_members(admin: KafkaAdmin, group: str) -> None:
    if members := member_count(admin, group):
        raise ConfigurationError(
            f"Group {group} has {members} members; a group that is at work can't be set.",
            hint="Stop its consumers first; after a crash the broker forgets them in a minute.",
        )


def _shown(positions: Positions) -> str:
    return ", ".join(f"{topic}[{part}] {at}" for (topic, part), at in sorted(positions.items()))
