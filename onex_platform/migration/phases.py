"""The phases of a topic's move, and what must be seen before each is left.

Pure. Evidence goes in, conditions come out, each with its value against its bound. Conditions about
loss can't be waived: an event that is missing, out of order or unread is never a matter of opinion.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise

from onex_platform.migration.sides import Comparison
from onex_platform.topics.migration_intent import EnumMigrationPhase as Phase

NEXT: Mapping[Phase, Phase] = dict(pairwise(Phase))
BEFORE: Mapping[Phase, Phase] = {later: earlier for earlier, later in NEXT.items()}


@dataclass(frozen=True)
class GroupEvidence:
    """A group of the source and its successor on the target."""

    group: str
    successor: str
    handed_over: bool
    members: int  # of the old group
    moved: int  # records that the old group has read since it was handed over
    lag: int  # of the successor


@dataclass(frozen=True)
class Evidence:
    """What was measured; a phase looks at its own part of it."""

    now: datetime
    entered_at: datetime | None = None
    lasts: timedelta = timedelta()
    retention: timedelta = timedelta()
    drift: tuple[str, ...] = ()
    missing_rights: tuple[str, ...] = ()
    strange_groups: tuple[str, ...] = ()
    retired_name: bool = False
    sides: Comparison = field(default_factory=Comparison)
    groups: tuple[GroupEvidence, ...] = ()
    lag_records: int = 0
    unmirrored: int = 0  # records that were deleted before the mirror saw them
    can_be_written: bool | None = False  # None: the broker asks nobody for rights
    appended: int = 0
    unarchived: int | None = 0  # None: the log does not read the topic

    @property
    def elapsed(self) -> timedelta:
        return self.now - (self.entered_at or self.now)


@dataclass(frozen=True)
class Condition:
    """One thing that must be so, with its value against its bound."""

    name: str
    value: str
    bound: str
    holds: bool
    about_loss: bool
    named: tuple[str, ...] = ()  # which events, keys, groups or rights are meant

    def __str__(self) -> str:
        verdict = "holds" if self.holds else "unmet"
        which = f" ({', '.join(self.named)})" if self.named else ""
        return f"{verdict}  {self.name}: {self.value}, needed {self.bound}{which}"


def conditions(phase: Phase, evidence: Evidence) -> tuple[Condition, ...]:
    """What must hold to leave the phase; nothing leaves the last one."""
    return tuple(_CONDITIONS[phase](evidence))


def in_the_way(found: Collection[Condition], *, forced: bool = False) -> tuple[Condition, ...]:
    """The conditions that keep a phase from being left; force waives none that is about loss."""
    return tuple(one for one in found if not one.holds and (one.about_loss or not forced))


def _none_of(name: str, named: Collection[str], *, about_loss: bool = True) -> Condition:
    return Condition(name, str(len(named)), "0", not named, about_loss, tuple(named))


def _at_most(name: str, value: int, bound: int, *, about_loss: bool = True) -> Condition:
    return Condition(name, str(value), f"at most {bound}", value <= bound, about_loss)


def _lasted(name: str, elapsed: timedelta, bound: timedelta) -> Condition:
    return Condition(name, _seconds(elapsed), _seconds(bound), elapsed >= bound, about_loss=False)


def _seconds(duration: timedelta) -> str:
    return f"{duration.total_seconds():g} s"


def _assess(evidence: Evidence) -> Iterator[Condition]:
    yield _none_of("differences of the target from its contract", evidence.drift)
    yield _none_of("rights that the target lacks", evidence.missing_rights)
    yield from _strangers(evidence)
    used = evidence.retired_name
    free = "retired" if used else "free"
    yield Condition("the target's name", free, "free", not used, about_loss=True)


def _strangers(evidence: Evidence) -> Iterator[Condition]:
    yield _none_of("groups that the intent does not name", evidence.strange_groups)


def _sides(evidence: Evidence) -> Iterator[Condition]:
    sides = evidence.sides
    yield _at_most("records deleted before they were mirrored", evidence.unmirrored, 0)
    yield _none_of("events missing on the target", sides.missing_on_target)
    yield _none_of("events missing on the source", sides.missing_on_source)
    yield _none_of("events more often on one side", sides.doubled, about_loss=False)
    yield _none_of("keys in another order", sides.disordered)


def _dual(evidence: Evidence) -> Iterator[Condition]:
    yield _lasted("time in dual", evidence.elapsed, evidence.lasts)
    yield from _sides(evidence)


def _successors(evidence: Evidence) -> Iterator[Condition]:
    for found in evidence.groups:
        name = f"records that {found.successor} has to read"
        yield _at_most(name, found.lag, evidence.lag_records)


def _old_groups(evidence: Evidence) -> Iterator[Condition]:
    yield from _strangers(evidence)
    waiting = [found.group for found in evidence.groups if not found.handed_over]
    yield _none_of("groups that are not handed over", waiting)
    for found in evidence.groups:
        yield _at_most(f"members of {found.group}", found.members, 0)
        yield _at_most(f"records read by {found.group} since", found.moved, 0)


def _move(evidence: Evidence) -> Iterator[Condition]:
    yield from _old_groups(evidence)
    yield from _successors(evidence)
    yield from _sides(evidence)


def _freeze(evidence: Evidence) -> Iterator[Condition]:
    writable = {None: "no authoriser keeps anybody from it", True: "allowed", False: "taken away"}
    yield Condition(
        "WRITE on the source",
        writable[evidence.can_be_written],
        "taken away",
        evidence.can_be_written is False,
        about_loss=False,
    )
    yield _at_most("records appended since the freeze", evidence.appended, 0)
    yield _lasted("time frozen", evidence.elapsed, evidence.retention)
    yield from _old_groups(evidence)
    yield from _successors(evidence)
    yield _none_of("events missing on the target", evidence.sides.missing_on_target)
    if evidence.unarchived is None:
        value, bound = "not read by the log", "kept by the target"
        yield Condition("records that the log lacks", value, bound, holds=True, about_loss=True)
    else:
        yield _at_most("records that the log lacks", evidence.unarchived, 0)


_CONDITIONS: Mapping[Phase, Callable[[Evidence], Iterator[Condition]]] = {
    Phase.ASSESS: _assess,
    Phase.DUAL: _dual,
    Phase.MOVE: _move,
    Phase.FREEZE: _freeze,
    Phase.RETIRED: lambda _evidence: iter(()),
}
