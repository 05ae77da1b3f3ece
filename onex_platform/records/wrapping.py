"""Headers of what the platform publishes: specification 004's nine, the region, the trace.

Nothing in them is random and nothing is read from a clock: whoever sends a record again sends the
same headers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING
from uuid import NAMESPACE_OID, UUID, uuid5

from pydantic import BaseModel, ValidationError

from onex_platform.base.settings import Settings
from onex_platform.domain import headers as h
from onex_platform.engines.kafka.clients import KafkaRecord

if TYPE_CHECKING:
    from onex_platform.records.key_folder import KeyFolder
    from onex_platform.records.privacy import FieldCipher
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
        self.tenant = settings.tenant  # of what belongs to nobody else
        self._signers: dict[str, Signer] = {}
        self._own: OutgoingHeaders = [
            (h.SCOPE, settings.records.scope),
            (h.ORIGIN, f"{settings.environment}/{SERVICE}"),
            (h.REGION, settings.records.region),
        ]

    def require_keys(self, topics: Iterable[h.PublishRules]) -> None:
        """Refuse to begin if one of the topics takes keys, and the one that opens them is missing,
        open to others, or in a KMS that can't be used."""
        if any(rules.signed or rules.pii_level == "high" for rules in topics):
            _ = self._keys.master

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
            (h.TENANT, event.tenant or self.tenant),
            *self.constant(actor=event.source, pii=pii),
            (h.CORRELATION_ID, str(correlation_id)),
            *traced(placed),
        ]

    def headers_of_record(self, record_id: UUID) -> OutgoingHeaders:
        """The headers of a record of the platform's own that is no envelope; it begins a trace."""
        return [
            (h.SCHEMA_VERSION, "1"),
            (h.TENANT, self.tenant),
            *self.constant(),
            (h.CORRELATION_ID, str(record_id)),
            *traced(h.trace_of(record_id, record_id)),
        ]

    def completed(
        self, headers: Sequence[tuple[str, str]], envelope: bytes, event_id: str
    ) -> OutgoingHeaders:
        """The headers of somebody else's record, and behind them those that it lacks.

        Its trace goes on; one that is malformed is followed by a new one. A value that is no
        envelope says nothing that headers could repeat.
        """
        given = dict(headers)
        trace = h.parse_traceparent(given.get(h.TRACEPARENT))
        try:
            own = self.headers_of(envelope, trace=trace)
        except ValidationError:
            begun = uuid5(NAMESPACE_OID, event_id)
            own = [*self._own, *traced(trace or h.trace_of(begun, begun))]
        if trace is None:
            given.pop(h.TRACEPARENT, None)
        return [*headers, *((name, value) for name, value in own if name not in given)]

    def wrap(
        self,
        rules: h.PublishRules,
        key: str,
        envelope: str,
        *,
        trace: h.Trace | None = None,
        more: Iterable[tuple[str, str | bytes | None]] = (),
    ) -> KafkaRecord:
        """An event as a record: private fields as the contract wants them, headers, signature."""
        value = self._with_private_fields(rules, envelope) if rules.private_fields else envelope
        pii = rules.pii_level
        headers = [*self.headers_of(value, pii=pii, trace=trace), *more]
        record = KafkaRecord(rules.topic, value, key, headers)
        return self._signer(str(dict(headers)[h.ACTOR])).sign(record) if rules.signed else record

    def wrap_value(
        self,
        rules: h.PublishRules,
        key: str,
        value: bytes,
        record_id: UUID,
        *,
        more: Iterable[tuple[str, str | bytes | None]] = (),
    ) -> KafkaRecord:
        """A value that is no envelope, and has no private fields, as a record."""
        record = KafkaRecord(rules.topic, value, key, [*self.headers_of_record(record_id), *more])
        return self._signer(SERVICE).sign(record) if rules.signed else record

    def _with_private_fields(self, rules: h.PublishRules, envelope: str) -> str:
        """The envelope with its high fields encrypted; on telemetry, without private ones."""
        from onex_platform.records.privacy import EnumAudience, redacted

        event = json.loads(envelope)
        if rules.telemetry:
            return json.dumps(redacted(event, rules.private_fields, EnumAudience.TELEMETRY))
        tenant = event.get("tenant") or self.tenant
        levels = rules.private_fields
        return json.dumps(self._cipher.protected(event, levels, rules.topic, tenant))

    @cached_property
    def _cipher(self) -> FieldCipher:
        from onex_platform.records.privacy import FieldCipher

        return FieldCipher(self._keys)

    @cached_property
    def _keys(self) -> KeyFolder:
        # Tink takes a while to load, and few processes sign or encrypt.
        from onex_platform.records.key_folder import KeyFolder

        return KeyFolder(self._settings)

    def _signer(self, actor: str) -> Signer:
        """Whoever the record says it is from signs it: readers look for that actor's key."""
        from onex_platform.records.signing import Signer

        if actor not in self._signers:
            self._signers[actor] = Signer(self._keys, actor)
        return self._signers[actor]


def traced(trace: h.Trace) -> OutgoingHeaders:
    """The headers that say where a record stands in a trace."""
    return [(h.TRACE_ID, trace.trace_id), (h.TRACEPARENT, str(trace))]
