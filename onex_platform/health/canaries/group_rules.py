"""Which consumer groups are a topic's own, and which of them don't read on. Pure.

A contract names its consumers by role. A group belongs to the role that its name begins with, as
`validator-onex-v1` does to `validator`. The oldest sample that a group has not passed says how long
it has been waiting; one that has waited for a whole period is broken.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

# Readers of the platform itself, whatever topic they read.
OWN_GROUPS = ("onex-platform-", "onex-canary-")


@dataclass(frozen=True, slots=True)
class Sample:
    """Where the last sample of a topic stands."""

    topic: str
    partition: int
    offset: int
    sent_at: datetime


@dataclass(frozen=True, slots=True)
class Awaited:
    """A sample that a group has not passed yet."""

    partition: int
    offset: int
    since: datetime


@dataclass(frozen=True, slots=True)
class GroupLook:
    """A group in a topic: what it has committed there, how far it is behind, who is in it."""

    topic: str
    group: str
    committed: Mapping[int, int]
    lag: int
    members: int


@dataclass(frozen=True, slots=True)
class GroupState:
    """What is known of a group in a topic after a look."""

    look: GroupLook
    awaited: Awaited | None

    def waits(self, now: datetime) -> timedelta:
        return timedelta() if self.awaited is None else now - self.awaited.since


def is_named(group: str, consumers: Collection[str]) -> bool:
    """Whether a group is one of the contract's consumers."""
    return any(group == role or group.startswith(f"{role}-") for role in consumers)


def is_own(group: str) -> bool:
    return group.startswith(OWN_GROUPS)


def judged(look: GroupLook, before: Awaited | None, sample: Sample | None) -> GroupState:
    """What a look says: still waiting for the same sample, for the newest one, or for none.

    A newest sample that stands before the one that is awaited says that the topic was made anew.
    """
    if before is not None and sample is not None and sample.partition == before.partition:
        before = None if sample.offset < before.offset else before
    if before is not None and not _has_passed(look, before.partition, before.offset):
        return GroupState(look, before)
    if sample is None or _has_passed(look, sample.partition, sample.offset):
        return GroupState(look, None)
    return GroupState(look, Awaited(sample.partition, sample.offset, sample.sent_at))


def is_broken(state: GroupState, now: datetime, period: timedelta) -> bool:
    """Whether the group has not passed a sample for a whole period."""
    return state.awaited is not None and state.waits(now) >= period


def is_sample_due(last: Sample | None, now: datetime, period: timedelta) -> bool:
    """Whether the next sample is to be sent: two in a period, so that a group that stops between
    two samples is told of within a period and a half."""
    return last is None or now >= last.sent_at + period / 2


def _has_passed(look: GroupLook, partition: int, offset: int) -> bool:
    return look.committed.get(partition, -1) > offset
