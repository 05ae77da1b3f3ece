"""What events write into a row: the fields of a life, and what an event says of its node."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from onex_platform.domain.events import Provenance
from onex_platform.domain.payloads import IntrospectionPayload, RegistrationFailedPayload

# Fields that the machine and the projection call the same.
LIFE_FIELDS = (
    "tenant",
    "epoch",
    "introspected_at",
    "ack_deadline",
    "liveness_deadline",
    "ack_timeout_emitted_at",
    "liveness_timeout_emitted_at",
    "registered_at",
    "last_state_change_at",
    "last_heartbeat_at",
    "deregistered_at",
)

Changes = dict[str, Any]


def described(payload: IntrospectionPayload, plain_id: str | None) -> Changes:
    """What an introspection says about its node; a plain-text id names a node that has no name."""
    return {
        "node_type": payload.node_type,
        "node_name": payload.node_name or plain_id,
        "node_version": payload.node_version,
        "capabilities": payload.capabilities,
        "endpoints": payload.endpoints,
        "metadata": payload.metadata,
        "network_id": payload.network_id,
        "deployment_id": payload.deployment_id,
    }


def failed(payload: RegistrationFailedPayload | None) -> Changes:
    """What a failed registration leaves in the row; without one, what a new life clears."""
    return {
        "failure_code": payload and payload.error_code,
        "failure_message": payload and payload.error_message,
    }


def changed(event_id: UUID, source: Provenance | None, correlation_id: UUID | None) -> Changes:
    """Where the last change of a row came from."""
    return {
        "last_applied_event_id": event_id,
        "last_applied_topic": source and source.topic,
        "last_applied_partition": source and source.partition,
        "last_applied_offset": source and source.offset,
        "correlation_id": correlation_id,
    }
