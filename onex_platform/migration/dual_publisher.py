"""For nodes and services that publish to a topic on the move: every event goes to both names.

    with open_dual_publisher(settings, catalogue, topic) as publisher:
        publisher.publish(envelope, key=node_id)

`publish` returns when both brokers' logs have the event. If it raises, publish the same envelope
again: at worst a reader sees the event twice, under the same event id. Killed in between, the
producer leaves the event on the source; the mirror brings it to the target once it has settled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from onex_platform.base.errors import InfraError
from onex_platform.base.faults import effect
from onex_platform.base.settings import Settings
from onex_platform.engines.kafka.clients import KafkaProducer, KafkaRecord, open_producer
from onex_platform.engines.kafka.sender import send_each
from onex_platform.migration.event_ids import id_to_add
from onex_platform.migration.move import broker_name, move_of
from onex_platform.topics.catalogue import Catalogue, Outlet, with_marks

Event = tuple[bytes, str]  # the envelope and the record's key


class DualPublisher:
    """Publishes to both topics of a move, source first; made by `open_dual_publisher`."""

    def __init__(self, producer: KafkaProducer, source: Outlet, target: Outlet) -> None:
        self._producer = producer
        self._outlets = source, target
        self._names = {
            outlet.topic: broker_name(producer.settings, outlet.contract)
            for outlet in self._outlets
        }

    def publish(
        self, envelope: bytes, *, key: str, headers: Sequence[tuple[str, str]] = ()
    ) -> None:
        """Publish one event to both topics."""
        self.publish_all([(envelope, key)], headers=headers)

    def publish_all(
        self, events: Sequence[Event], *, headers: Sequence[tuple[str, str]] = ()
    ) -> None:
        """Publish events in their order: all to the source, then all to the target."""
        for outlet, mark in with_marks(self._outlets):
            records = [
                KafkaRecord(
                    self._names[outlet.topic],
                    outlet.value(envelope),
                    key,
                    [*headers, *id_to_add(key.encode(), envelope, headers), *mark],
                )
                for envelope, key in events
            ]
            with effect("migration.dual_send"):
                refused = send_each(self._producer, records)
            for place, reason in refused.items():
                raise InfraError(
                    f"{records[place].topic} refused the event with the key "
                    f"{records[place].key!r}: {reason}.",
                    hint="Mend the event, then publish it again under the same event id.",
                )


@contextmanager
def open_dual_publisher(
    settings: Settings, catalogue: Catalogue, topic: str
) -> Iterator[DualPublisher]:
    """A publisher to a topic that moves, and to where it moves; the topic is the one that is left.

    Events are given in the source's version, and lifted for the target.
    """
    move = move_of(settings, catalogue, topic)
    lifts = () if move.intent.lift is None else (move.intent.lift,)
    source, target = Outlet(move.source), Outlet(move.target, lifts)
    with open_producer(settings) as producer:
        yield DualPublisher(producer, source, target)
