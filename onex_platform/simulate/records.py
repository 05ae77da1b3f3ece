"""The record that a history is made of, and the account of all records played."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from onex_platform.domain.envelope import EnumParkReason
from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.intake import is_ledgered
from onex_platform.domain.states import EnumRegistrationState
from onex_platform.simulate.profiles import EnumDisturbance

Headers = tuple[tuple[str, bytes], ...]

_SENT_BEFORE = (EnumDisturbance.DUPLICATE, EnumDisturbance.TWIN)


class Record(NamedTuple):
    """A record on its way to a topic, with what the simulator knows about it."""

    time_ms: int
    kind: EnumEventKind
    legacy: bool
    topic: str
    partition: int
    append_time: bool
    key: bytes
    value: bytes | None
    headers: Headers
    node: int
    scenario: str
    disturbance: EnumDisturbance | None
    malformed: EnumParkReason | None  # why the intake parks it; None: it is admitted
    epoch: int | None  # the life that it names


class Announcement(NamedTuple):
    """Where a node stands after everything that was played of it."""

    tenant: str
    node_id: str
    scenario: str
    state: EnumRegistrationState
    closed: bool


# topic, kind, scenario, disturbance, reason
_Label = tuple[str, EnumEventKind, str, EnumDisturbance | None, EnumParkReason | None]


@dataclass(slots=True)
class Summary:
    """What was played, counted; a reader of the history can be checked against it."""

    counts: Counter[_Label] = field(default_factory=Counter)
    scripts: Counter[str] = field(default_factory=Counter)
    traits: Counter[str] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)

    @property
    def records(self) -> int:
        return self.counts.total()

    @property
    def by_topic(self) -> Counter[str]:
        return self._by(0)

    @property
    def by_kind(self) -> Counter[str]:
        return self._by(1)

    @property
    def by_scenario(self) -> Counter[str]:
        return self._by(2)

    @property
    def by_disturbance(self) -> Counter[str]:
        return self._by(3)

    @property
    def malformed(self) -> Counter[str]:
        """Per reason, what the intake parks."""
        return self._by(4)

    @property
    def duplicates(self) -> int:
        """What the ledger of event ids refuses; a repeated heartbeat is none."""
        return sum(
            count
            for (_, kind, _, disturbance, _), count in self.counts.items()
            if disturbance in _SENT_BEFORE and is_ledgered(kind)
        )

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain numbers, for printing and for JSON."""
        return {
            "records": self.records,
            "duplicates": self.duplicates,
            **{name: dict(sorted(counts.items())) for name, counts in self._tables()},
        }

    def _tables(self) -> Iterator[tuple[str, Counter[str]]]:
        for name in (
            "by_topic",
            "by_kind",
            "by_scenario",
            "by_disturbance",
            "malformed",
            "scripts",
            "traits",
            "states",
        ):
            yield name, getattr(self, name)

    def _by(self, place: int) -> Counter[str]:
        counts: Counter[str] = Counter()
        for label, count in self.counts.items():
            if (part := label[place]) is not None:
                counts[str(part)] += count
        return counts
