"""Where an event is published: one topic, or two while its topic moves to another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onex_platform.engines.kafka.clients import KafkaRecord
from onex_platform.topics.contract import TopicContract
from onex_platform.topics.migration_intent import Lift

# On each record of an event that goes to several topics: the others, which its producer writes
# itself. A mirror leaves it time to.
ALSO_ON = "x-also-on"


@dataclass(frozen=True)
class Outlet:
    """A topic that an event is published to, and what its value goes through on the way."""

    contract: TopicContract
    lifts: tuple[Lift, ...] = ()

    @property
    def topic(self) -> str:
        return self.contract.topic

    def value(self, value: str | bytes) -> bytes:
        """The event's value as the topic's readers expect it."""
        content = value.encode() if isinstance(value, str) else value
        for lift in self.lifts:
            content = lift.apply(content)
        return content


def to_records(
    outlets: Sequence[Outlet],
    envelope: str | bytes,
    key: str,
    headers: Sequence[tuple[str, str]] = (),
) -> list[KafkaRecord]:
    """One event as a record of each topic that it is published to; each names the others."""
    records = []
    for here in outlets:
        others = ",".join(other.topic for other in outlets if other is not here)
        marked = [*headers, (ALSO_ON, others)] if others else headers
        records.append(KafkaRecord(here.topic, here.value(envelope), key, marked))
    return records
