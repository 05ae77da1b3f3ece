"""The CloudEvents binding for Kafka, in its binary mode: attributes are headers, data is the value.

The value stays the platform's own envelope, so whoever reads that, ourselves included, sees no
difference.
"""

from __future__ import annotations

from pydantic import AwareDatetime, BaseModel, TypeAdapter

_SPEC_VERSION = "1.0"
_CONTENT_TYPE = "application/json"


class _Envelope(BaseModel):
    """What the attributes are made of."""

    event_id: str
    event_type: str
    source: str
    timestamp: AwareDatetime
    tenant: str | None = None
    schema_version: int


_TIME: TypeAdapter[AwareDatetime] = TypeAdapter(AwareDatetime)


def attributes(envelope: str, key: str) -> list[tuple[str, str]]:
    """The headers of an event whose envelope is this JSON."""
    event = _Envelope.model_validate_json(envelope)
    return [
        ("content-type", _CONTENT_TYPE),
        ("ce_specversion", _SPEC_VERSION),
        ("ce_id", event.event_id),
        # A reference, as the specification asks: two tenants' registries are two sources.
        ("ce_source", f"/{event.source}/{event.tenant or ''}".rstrip("/")),
        ("ce_type", event.event_type),
        ("ce_time", _TIME.dump_python(event.timestamp, mode="json")),
        ("ce_subject", key),
        ("ce_schemaversion", str(event.schema_version)),
    ]
