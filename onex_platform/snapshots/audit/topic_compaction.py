"""Whether the broker keeps the snapshot topic compact, measured by reading the topic.

A record is superseded once a newer one with its key is committed; then it should go. Kafka promises
when: a segment ends with the first append after `max.compaction.lag.ms`, and what is in it can be
compacted `min.compaction.lag.ms` later. From then on a superseded record is late, and not before: a
partition to which nobody appends keeps its last segment as it is, and nobody is to blame.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import chain
from typing import Any

from onex_platform.base.settings import Settings
from onex_platform.checks import Verdict
from onex_platform.engines.kafka.topic_reader import open_reader

# The cleaner looks for work four times a minute by default, and needs some time for it.
ALLOWANCE = timedelta(minutes=2)


@dataclass(frozen=True)
class CompactionState:
    """How much of the topic is superseded, and for how long; what is not there is zero."""

    records: int
    keys: int
    superseded: int
    oldest_age: timedelta  # of the oldest record that is superseded
    superseded_for: timedelta  # how long the first of them has been so
    late_for: timedelta  # how long it should have been gone
    max_lag: timedelta


@dataclass
class _Partition:
    """Times in milliseconds, in the order of the partition."""

    newest: dict[bytes | None, int] = field(default_factory=dict)
    appends: array[int] = field(default_factory=lambda: array("q"))
    superseded: int = 0
    oldest: int | None = None  # time of the oldest record that is superseded
    first_superseding: int | None = None

    def add(self, key: bytes | None, moment: int) -> None:
        before = self.newest.get(key)
        if before is not None:
            self.superseded += 1
            self.oldest = _earlier(self.oldest, before)
            self.first_superseding = _earlier(self.first_superseding, moment)
        self.newest[key] = moment
        self.appends.append(max(moment, self.appends[-1] if self.appends else moment))

    def due(self, max_lag: int, min_lag: int) -> int | None:
        """When the first superseded record should have been gone; None if that is still open."""
        if self.first_superseding is None:
            return None
        place = bisect_right(self.appends, self.first_superseding + max_lag)
        return self.appends[place] + min_lag if place < len(self.appends) else None


def measure_compaction(settings: Settings, topic: str, now: datetime) -> CompactionState:
    """Read the whole topic and look for records that have newer ones with their key."""
    with open_reader(settings, topic) as reader:
        config = reader.config()
        partitions = {partition: _Partition() for partition in reader.start.ends}
        records: Iterable[Any] = chain.from_iterable(reader.read_to(reader.start.ends))
        for record in records:
            partitions[record.partition()].add(record.key(), record.timestamp()[1])
    max_lag, min_lag = (int(config[f"{name}.compaction.lag.ms"]) for name in ("max", "min"))
    found = partitions.values()
    return CompactionState(
        records=sum(len(partition.appends) for partition in found),
        keys=sum(len(partition.newest) for partition in found),
        superseded=sum(partition.superseded for partition in found),
        oldest_age=_since(now, *(partition.oldest for partition in found)),
        superseded_for=_since(now, *(partition.first_superseding for partition in found)),
        late_for=_since(now, *(partition.due(max_lag, min_lag) for partition in found)),
        # Kafka's "never" is beyond what a timedelta can hold.
        max_lag=timedelta(milliseconds=min(max_lag, timedelta.max // timedelta(milliseconds=1))),
    )


def compaction_keeps_up(
    settings: Settings, topic: str, now: datetime, allowance: timedelta = ALLOWANCE
) -> Verdict:
    """Whether superseded records go as soon as the topic's settings promise, or a little later."""
    state = measure_compaction(settings, topic, now)
    age, late = state.oldest_age.total_seconds(), state.late_for.total_seconds()
    return Verdict(
        state.late_for <= allowance,
        f"{state.superseded} of {state.records} records are superseded, the oldest is {age:.0f} s "
        f"old; compaction is {late:.0f} s late and may be {allowance.total_seconds():.0f} s.",
        {
            "records": state.records,
            "keys": state.keys,
            "superseded records": state.superseded,
            "age of the oldest uncompacted record in seconds": age,
            "superseded for seconds": state.superseded_for.total_seconds(),
            "late for seconds": late,
            "max.compaction.lag in seconds": state.max_lag.total_seconds(),
            "allowance in seconds": allowance.total_seconds(),
        },
    )


def _earlier(one: int | None, other: int) -> int:
    return other if one is None else min(one, other)


def _since(now: datetime, *moments: int | None) -> timedelta:
    """The time since the earliest of these; none at all if there is none, or it is to come."""
    known = [moment for moment in moments if moment is not None]
    if not known:
        return timedelta()
    return max(timedelta(), timedelta(milliseconds=now.timestamp() * 1000 - min(known)))
