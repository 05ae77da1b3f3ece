"""Headers of what the platform publishes: specification 004's nine, the region, the trace.

Nothing in them is random and nothing is read from a clock: whoever sends a record again sends the
same headers.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING
from uuid import UUID

from pydantic import BaseModel

from onex_platform.base.settings import Settings
from onex_platform.domain import headers as h
from onex_platform.engines.kafka.clients import KafkaRecord

if TYPE_CHECKING:
    from onex_platform.records.signing import Signer

SERVICE = "onex-platform"
NO_ENCRYPTION = "none"
FIELD_ENCRYPTION = "tink-aes256-gcm"

OutgoingHeaders = list[tuple[str, str | bytes | None]]


class _Envelope(BaseModel):
    """What headers repeat of an envelope."""

    event_id: UUID
    source: str
    correlation_id: UUID | None = None
    tenant: str | None = None
    schema_version: int


class Wrapper:
    """Wraps what one process publishes. Keys are read for the first record that needs one."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._own: OutgoingHeaders = [
            (h.SCOPE, settings.records.scope),
            (h.ORIGIN, f"{settings.environment}/{SERVICE}"),
            (h.REGION, settings.records.region),
        ]

    def constant(self, *, actor: str = SERVICE, pii: str = "none") -> OutgoingHeaders:
        """The headers that all records of a topic share; a version goes before, a trace behind."""
        scheme = FIELD_ENCRYPTION if pii == "high" else NO_ENCRYPTION
        return [
            *self._own,
            (h.ACTOR, actor),
            (h.ENCRYPTION_SCHEME, scheme),
            (h.PII_LEVEL, pii),
        ]

    def headers_of(
        self, envelope: str | bytes, *, pii: str = "none", trace: h.Trace | None = None
    ) -> OutgoingHeaders:
        """The headers of an event whose envelope is this JSON; it continues the trace, if given."""
        event = _Envelope.model_validate_json(envelope)
        correlation_id = event.correlation_id or event.event_id
        begun = h.trace_of(correlation_id, event.event_id)
        placed = begun if trace is None else h.Trace(trace.trace_id, begun.span_id)
        return [
            (h.SCHEMA_VERSION, str(event.schema_version)),
            (h.TENANT, event.tenant or self._settings.tenant),
            *self.constant(actor=event.source, pii=pii),
            (h.CORRELATION_ID, str(correlation_id)),
            *traced(placed),
        ]

    def wrap(
        self,
        topic: str,
        key: str,
        envelope: str | bytes,
        *,
        pii: str = "none",
        signed: bool = False,
        trace: h.Trace | None = None,
        more: Iterable[tuple[str, str | bytes | None]] = (),
    ) -> KafkaRecord:
        """An event as a record of the topic, with headers, and signed if its contract asks."""
        record = KafkaRecord(
            topic, envelope, key, [*self.headers_of(envelope, pii=pii, trace=trace), *more]
        )
        return self.signed(record) if signed else record

    def signed(self, record: KafkaRecord) -> KafkaRecord:
        """The record with its signature, which binds topic, key, headers and value."""
        return self._signer.sign(record)

    @cached_property
    def _signer(self) -> Signer:
        # Tink takes a while to load, and few processes sign.
        from onex_platform.records.key_folder import KeyFolder
        from onex_platform.records.signing import Signer

        return Signer(KeyFolder(self._settings), SERVICE)


def traced(trace: h.Trace) -> OutgoingHeaders:
    """The headers that say where a record stands in a trace."""
    return [(h.TRACE_ID, trace.trace_id), (h.TRACEPARENT, str(trace))]
