"""Payload models, one per event kind: strict about what we rely on, tolerant to the rest.

Unknown fields are kept, so that an archived event is as rich as the one that was sent. The registry
of kinds and versions is in `envelope.py`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
)

from onex_platform.domain.states import EnumNodeType

# What a bigint holds. Only the door of the log is narrower: `intake.most_epoch`.
MAX_EPOCH = 2**63 - 1


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("in UTC, this is outside the years 1 to 9999") from None


# A time as others write it. At both ends of the calendar an offset leads out of it.
Instant = Annotated[AwareDatetime, AfterValidator(_in_utc)]
Epoch = Annotated[int, Field(strict=True, ge=0, le=MAX_EPOCH)]
ShortText = Annotated[str, Field(max_length=1024)]
NodeId = Annotated[str, Field(strict=True)]
# Where in the network a node is to be found: in clear for its readers, out of logs and telemetry.
Endpoints = Annotated[dict[str, str], Field(json_schema_extra={"pii": "low"})]
NodeType = Annotated[EnumNodeType, BeforeValidator(lambda value: EnumNodeType(value))]


class Payload(BaseModel):
    """Base of all payloads."""

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False)


class ModelNodeCapabilities(BaseModel):
    """What a node can do: named flags, and the lists of the published capability format."""

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False)

    supported_operations: tuple[str, ...] = ()
    protocols: tuple[str, ...] = ()
    max_concurrent_requests: Annotated[int, Field(ge=0)] | None = None

    def names(self) -> frozenset[str]:
        """Every capability by name: flags that are true, operations, protocols."""
        flags = {name for name, value in (self.model_extra or {}).items() if value is True}
        return frozenset(flags | set(self.supported_operations) | set(self.protocols))

    def supports(self, name: str) -> bool:
        return name in self.names()


class NodePayload(Payload):
    """Base of the payloads that are about one node."""

    node_id: NodeId
    epoch: Epoch | None = None


class IntrospectionPayload(NodePayload):
    node_type: NodeType
    node_version: ShortText | None = None
    node_name: ShortText | None = None
    capabilities: ModelNodeCapabilities = ModelNodeCapabilities()
    endpoints: Endpoints = {}
    metadata: dict[str, Any] = {}
    network_id: ShortText | None = None
    deployment_id: ShortText | None = None


class HeartbeatPayload(NodePayload):
    node_type: NodeType | None = None
    node_version: ShortText | None = None
    uptime_seconds: Annotated[float, Field(ge=0)] | None = None
    active_operations_count: Annotated[int, Field(ge=0)] | None = None
    memory_usage_mb: Annotated[float, Field(ge=0)] | None = None
    cpu_usage_percent: Annotated[float, Field(ge=0)] | None = None


class ShutdownPayload(NodePayload):
    node_type: NodeType | None = None
    reason: ShortText | None = None


class AckPayload(NodePayload):
    """A node confirms that it received the registry's request."""


class AcceptedPayload(NodePayload):
    reason: ShortText | None = None


class AckRequestedPayload(NodePayload):
    ack_timeout_seconds: Annotated[float, Field(gt=0)] | None = None


class RegisteredPayload(NodePayload):
    registration_id: ShortText | None = None
    consul_service_id: ShortText | None = None
    postgres_row_id: ShortText | None = None
    registered_at: Instant | None = None
    ttl_seconds: Annotated[float, Field(gt=0)] | None = None


class RegistrationFailedPayload(NodePayload):
    error_code: ShortText
    error_message: str = ""
    consul_success: bool | None = None
    postgres_success: bool | None = None
    retry_eligible: Annotated[bool, Field(strict=True)]
    suggested_retry_delay_seconds: Annotated[float, Field(ge=0)] | None = None


class TimeoutPayload(NodePayload):
    """A deadline passed; the fact is good only for the deadline that it names."""

    deadline: Instant


class DeregisteredPayload(NodePayload):
    reason: ShortText | None = None
    consul_deregistered: bool | None = None
    postgres_deregistered: bool | None = None
    deregistered_at: Instant | None = None


class IntrospectionRequestedPayload(Payload):
    request_id: ShortText
    target_node_ids: tuple[NodeId, ...] | None = None
    target_node_types: tuple[NodeType, ...] | None = None
    reason: ShortText | None = None


class WorkflowPayload(Payload):
    workflow_id: ShortText


class WorkflowFailedPayload(WorkflowPayload):
    error_code: ShortText | None = None
    error_message: str | None = None


class BreakerStateChangedPayload(Payload):
    service_name: ShortText
    previous_state: ShortText
    new_state: ShortText
    failure_count: Annotated[int, Field(ge=0)]
    reset_timeout_seconds: Annotated[float, Field(ge=0)] | None = None


class ErrorDetectedPayload(Payload):
    error_code: ShortText
    severity: ShortText
    message: str
    node_type: NodeType | None = None
    node_name: ShortText | None = None
    transport_type: ShortText | None = None
    operation: ShortText | None = None
    context: dict[str, Any] = {}
