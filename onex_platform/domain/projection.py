"""The projection of one node, its place in the log, and the snapshot derived from it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Self
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from onex_platform.domain.deadlines import is_past
from onex_platform.domain.identity import REGISTRATION_DOMAIN, EntityKey
from onex_platform.domain.payloads import Endpoints, Epoch, ModelNodeCapabilities
from onex_platform.domain.states import EnumNodeType, EnumRegistrationState

# Of a row and of the records about it: 18 digits leave room in a bigint, and no lifetime of changes
# gets there. Who reads a higher one reads nobody's.
MOST_VERSION = 10**18 - 1
# A row that is lifted above what somebody else wrote can change as often again.
MOST_LIFTED_VERSION = MOST_VERSION // 2


class ModelSequenceInfo(BaseModel):
    """A place in the log, with the Kafka record it came from as a trace.

    Only `sequence` orders. Offsets of different topics or partitions are never compared.
    """

    model_config = ConfigDict(frozen=True)

    sequence: Annotated[int, Field(ge=0)]
    topic: str | None = None
    partition: Annotated[int, Field(ge=0)] | None = None
    offset: Annotated[int, Field(ge=0)] | None = None

    def is_stale_compared_to(self, other: ModelSequenceInfo) -> bool:
        """Equality is stale: what stands at this place has been applied already."""
        return self.sequence <= other.sequence


class ModelRegistrationProjection(BaseModel):
    """The current state of one node, as the fold of its part of the log.

    A deadline stands in the row only while it is armed: `ack_deadline` while an acknowledgement is
    awaited, `liveness_deadline` while the node is active, neither once it is deregistered.
    `last_applied_sequence` counts heartbeats; the rest of the provenance names the last event
    that was not one. `row_version` belongs to publication: the store raises it, the fold does not.
    """

    model_config = ConfigDict(extra="forbid")

    entity_id: UUID
    domain: str = REGISTRATION_DOMAIN
    tenant: str

    current_state: EnumRegistrationState
    epoch: Epoch
    node_type: EnumNodeType
    node_name: str | None = None
    node_version: str | None = None
    capabilities: ModelNodeCapabilities = ModelNodeCapabilities()
    endpoints: Endpoints = {}
    metadata: dict[str, Any] = {}
    network_id: str | None = None
    deployment_id: str | None = None

    ack_deadline: AwareDatetime | None = None
    liveness_deadline: AwareDatetime | None = None
    ack_timeout_emitted_at: AwareDatetime | None = None
    liveness_timeout_emitted_at: AwareDatetime | None = None

    introspected_at: AwareDatetime
    registered_at: AwareDatetime | None = None
    last_state_change_at: AwareDatetime
    last_heartbeat_at: AwareDatetime | None = None
    deregistered_at: AwareDatetime | None = None
    failure_code: str | None = None
    failure_message: str | None = None

    last_applied_event_id: UUID
    last_applied_sequence: Annotated[int, Field(ge=0)]
    last_applied_topic: str | None = None
    last_applied_partition: int | None = None
    last_applied_offset: int | None = None
    correlation_id: UUID | None = None
    row_version: int = 0

    @property
    def key(self) -> EntityKey:
        return EntityKey(self.domain, self.entity_id)

    @property
    def sequence_info(self) -> ModelSequenceInfo:
        return ModelSequenceInfo(
            sequence=self.last_applied_sequence,
            topic=self.last_applied_topic,
            partition=self.last_applied_partition,
            offset=self.last_applied_offset,
        )

    def is_closed(self) -> bool:
        """Deregistered: left out of reads, its snapshot a tombstone."""
        return self.deregistered_at is not None

    def is_life_over(self) -> bool:
        """Only an introspection that begins a new life can follow."""
        return self.is_closed() or self.current_state.is_terminal()

    def needs_ack_timeout_event(self, now: datetime) -> bool:
        return (
            self.ack_deadline is not None
            and self.ack_timeout_emitted_at is None
            and is_past(self.ack_deadline, now)
        )

    def needs_liveness_timeout_event(self, now: datetime) -> bool:
        return (
            self.liveness_deadline is not None
            and self.liveness_timeout_emitted_at is None
            and is_past(self.liveness_deadline, now)
        )

    def domain_columns(self) -> dict[str, Any]:
        """Everything that replay must reproduce bit by bit."""
        return self.model_dump(exclude={"row_version"})


class ModelRegistrationSnapshot(BaseModel):
    """What readers of the compacted topic see: no deadlines, no provenance but the position."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    entity_id: UUID
    domain: str = REGISTRATION_DOMAIN
    tenant: str | None = None
    current_state: EnumRegistrationState
    node_type: EnumNodeType | None = None
    node_name: str | None = None
    capabilities: ModelNodeCapabilities | None = None
    last_state_change_at: AwareDatetime
    snapshot_version: Annotated[int, Field(ge=1, le=MOST_VERSION)]
    snapshot_created_at: AwareDatetime
    source_projection_sequence: int | None = None

    @classmethod
    def from_projection(
        cls, projection: ModelRegistrationProjection, *, snapshot_created_at: datetime
    ) -> Self:
        """The snapshot of a stored row; its version is the row's."""
        return cls(
            entity_id=projection.entity_id,
            domain=projection.domain,
            tenant=projection.tenant,
            current_state=projection.current_state,
            node_type=projection.node_type,
            node_name=projection.node_name,
            capabilities=projection.capabilities,
            last_state_change_at=projection.last_state_change_at,
            snapshot_version=projection.row_version,
            snapshot_created_at=snapshot_created_at,
            source_projection_sequence=projection.last_applied_sequence,
        )

    def to_kafka_key(self) -> str:
        return str(self.entity_id)

    def is_active(self) -> bool:
        return self.current_state.is_active()

    def is_newer_than(self, other: ModelRegistrationSnapshot) -> bool:
        return self.snapshot_version > other.snapshot_version
