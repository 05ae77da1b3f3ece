"""The platform's own events as they come back from Kafka, and what the ledger knows of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from onex_platform.domain.events import EnumEventKind, LogEvent
from onex_platform.domain.intake import RawRecord
from onex_platform.ingest.deduplication import digest_of
from onex_platform.projections.write.outbox import SOURCE, envelope_of


def echo_of(fact: LogEvent, topic: str, offset: int) -> RawRecord:
    """A fact as the relay publishes it."""
    headers = {"x-tenant": fact.tenant, "x-actor": SOURCE, "x-scope": "s", "x-region": "here"}
    return RawRecord(
        topic=topic,
        partition=0,
        offset=offset,
        timestamp=fact.occurred_at,
        append_time=True,
        key=(fact.node_id or str(fact.event_id)).encode(),
        value=envelope_of(fact).model_dump_json().encode(),
        headers=[(name, text.encode()) for name, text in headers.items()],
        kind=fact.kind,
    )


class _Known(NamedTuple):
    reported_at: datetime
    digest: bytes


class PublishedFacts:
    """A ledger that knows some published facts."""

    def __init__(self, facts: Sequence[LogEvent]) -> None:
        self._known = {
            str(fact.event_id): _Known(fact.reported_at or fact.occurred_at, _digest_of(fact))
            for fact in facts
        }

    @property
    def ids(self) -> set[UUID]:
        return {UUID(text) for text in self._known}

    def digests(self) -> set[bytes]:
        return {known.digest for known in self._known.values()}

    def lookup(self, ids: Sequence[str], floor: datetime | None) -> set[bytes]:
        return {
            self._known[item].digest
            for item in ids
            if item in self._known and (floor is None or self._known[item].reported_at >= floor)
        }


def _digest_of(fact: LogEvent) -> bytes:
    sent = echo_of(fact, "any", 0)
    assert sent.key is not None and sent.value is not None
    return digest_of(EnumEventKind(fact.kind).encode(), sent.key, fact.tenant.encode(), sent.value)
