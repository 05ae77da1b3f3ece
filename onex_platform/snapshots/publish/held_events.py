"""Events that can't be published hold up their own node: who waits, and who should know is told."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid5

from onex_platform.base.faults import effect
from onex_platform.base.settings import Settings
from onex_platform.base.telemetry import shortened
from onex_platform.checks import Verdict
from onex_platform.engines.postgres.database import Database
from onex_platform.migration.publication import published
from onex_platform.projections.write import outbox
from onex_platform.topics.alarms import Alarm, tell
from onex_platform.topics.catalogue import Catalogue

_OPERATION = "publish_events"


def alert_of_held(settings: Settings, catalogue: Catalogue, database: Database, domain: str) -> int:
    """Tell of every node that is held up and not told of yet; how many the broker has taken.

    What it does not take is told with the next attempt to publish, under the same event id.
    """
    with database.transaction() as cursor:
        untold = outbox.held(cursor, domain, untold=True)
    if not untold:
        return 0
    alarms = [_alarm(domain, node) for node in untold]
    with published(database, catalogue) as moved:
        told = tell(settings, moved, "held_publication", "held_publication.alert", alarms)
    if told:
        with effect("held_publication.mark_alert"), database.transaction() as cursor:
            nodes = [node.entity_id for node in untold]
            outbox.mark_told(cursor, domain, nodes, datetime.now(UTC))
    return told


def no_event_is_held_back(database: Database, domain: str, now: datetime) -> Verdict:
    """Whether every event that the registry has for Kafka can be sent, and is taken."""
    with database.transaction() as cursor:
        held = outbox.held(cursor, domain)
    oldest = min((node.held_since for node in held), default=now)
    return Verdict(
        not held,
        f"Events of {len(held)} nodes can't be sent: {shortened(list(map(str, held)))}. They are"
        " tried again; raise the topic's max.message.bytes if they are too large."
        if held
        else "No event is refused.",
        {
            "held nodes": len(held),
            "held events": sum(node.events for node in held),
            "longest in seconds": max((now - oldest).total_seconds(), 0.0),
        },
    )


def _alarm(domain: str, node: outbox.Held) -> Alarm:
    return Alarm(
        correlation_id=uuid5(node.entity_id, f"{domain} held at {node.event_id}"),
        error="PublicationHeld",
        message=f"Event {node.event_id} of node {node.entity_id} can't be sent: {node.error}. "
        "It and those behind it wait; all other nodes go on.",
        operation=_OPERATION,
        occurred_at=node.held_since,
        context={
            "domain": domain,
            "node": str(node.entity_id),
            "since": node.held_since.isoformat(),
            "event_id": str(node.event_id),
            "kind": node.event_kind,
            "error": node.error,
            "events": node.events,
        },
    )
