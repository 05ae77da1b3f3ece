"""The registry's policy, pure: which facts follow an event that was just folded.

What is decided becomes part of the log, right behind its cause, and is never decided again. A new
policy judges new events; it rewrites nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple, Protocol

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import BaseModel, ConfigDict, field_validator

from onex_platform.domain.deadlines import Durations
from onex_platform.domain.events import EnumEventKind, LogEvent
from onex_platform.domain.facts import FactWriter
from onex_platform.domain.machine import FIRST_EPOCH
from onex_platform.domain.payloads import (
    AcceptedPayload,
    AckRequestedPayload,
    DeregisteredPayload,
    IntrospectionPayload,
    IntrospectionRequestedPayload,
    ModelNodeCapabilities,
    Payload,
    RegisteredPayload,
    RegistrationFailedPayload,
    ShutdownPayload,
)
from onex_platform.domain.projection import ModelRegistrationProjection
from onex_platform.domain.states import EnumNodeType, EnumRegistrationState

Kind = EnumEventKind
State = EnumRegistrationState

_ORIGIN = datetime(1970, 1, 1, tzinfo=UTC)


class EnumRejection(StrEnum):
    """Why the policy turned a node away; the `error_code` of its failure event."""

    TENANT_NOT_ALLOWED = "TENANT_NOT_ALLOWED"
    NODE_TYPE_NOT_ALLOWED = "NODE_TYPE_NOT_ALLOWED"
    VERSION_NOT_ALLOWED = "VERSION_NOT_ALLOWED"
    CAPABILITY_MISSING = "CAPABILITY_MISSING"
    CAPABILITY_FORBIDDEN = "CAPABILITY_FORBIDDEN"


class RegistrationPolicy(BaseModel):
    """Who may register, as data. The default lets every well-formed node in."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    tenants: frozenset[str] | None = None
    node_types: frozenset[EnumNodeType] | None = None
    versions: str = ""
    required_capabilities: Mapping[EnumNodeType, frozenset[str]] = {}
    forbidden_capabilities: frozenset[str] = frozenset()
    request_interval: timedelta = timedelta(minutes=5)
    durations: Durations = Durations()

    @field_validator("versions")
    @classmethod
    def _versions_are_readable(cls, versions: str) -> str:
        try:
            SpecifierSet(versions)
        except InvalidSpecifier:
            raise ValueError(
                f"versions={versions!r} is no version rule; write it like '>=1.2,<3'"
            ) from None
        return versions


class Rejection(NamedTuple):
    code: EnumRejection
    message: str


class Judged(Protocol):
    """What the policy may look at in a node."""

    @property
    def tenant(self) -> str: ...
    @property
    def node_type(self) -> EnumNodeType: ...
    @property
    def node_version(self) -> str | None: ...
    @property
    def capabilities(self) -> ModelNodeCapabilities: ...


class Described(NamedTuple):
    """A node as its introspection describes it."""

    tenant: str
    node_type: EnumNodeType
    node_version: str | None
    capabilities: ModelNodeCapabilities


def judge(projection: Judged, policy: RegistrationPolicy) -> Rejection | None:
    """Why the policy rejects this node, or None if it is welcome."""
    if policy.tenants is not None and projection.tenant not in policy.tenants:
        return Rejection(
            EnumRejection.TENANT_NOT_ALLOWED,
            f"tenant {projection.tenant!r} is not among {_listed(policy.tenants)}",
        )
    if policy.node_types is not None and projection.node_type not in policy.node_types:
        return Rejection(
            EnumRejection.NODE_TYPE_NOT_ALLOWED,
            f"node_type {projection.node_type.value!r} is not among {_listed(policy.node_types)}",
        )
    if not _version_matches(projection.node_version, policy.versions):
        return Rejection(
            EnumRejection.VERSION_NOT_ALLOWED,
            f"node_version {projection.node_version!r} does not match {policy.versions!r}",
        )
    offered = projection.capabilities.names()
    required = policy.required_capabilities.get(projection.node_type, frozenset())
    if missing := required - offered:
        return Rejection(
            EnumRejection.CAPABILITY_MISSING,
            f"capabilities {_listed(missing)} are required of {projection.node_type.value} nodes",
        )
    if forbidden := policy.forbidden_capabilities & offered:
        return Rejection(
            EnumRejection.CAPABILITY_FORBIDDEN,
            f"capabilities {_listed(forbidden)} are not allowed",
        )
    return None


def concern(tenant: str, payload: Payload, policy: RegistrationPolicy) -> Hashable:
    """All that `decide` makes of what an event says, but for ids and instants.

    Causes of one kind that concern the decider equally are answered alike if their nodes' rows have
    the same tenant, state and epoch: the answers differ in ids and instants alone.
    """
    if isinstance(payload, IntrospectionPayload):
        described = Described(tenant, payload.node_type, payload.node_version, payload.capabilities)
        return judge(described, policy)
    return payload.reason if isinstance(payload, ShutdownPayload) else None


def decide(
    projection: ModelRegistrationProjection | None,
    event: LogEvent,
    policy: RegistrationPolicy,
    now: datetime,
) -> list[LogEvent]:
    """The facts that follow `event`, given the row right after it was folded."""
    if event.node_id is None or event.duplicate:
        return []
    if projection is None or projection.is_life_over():
        return _ask_to_introspect(projection, event, event.node_id, policy, now)
    if projection.last_applied_event_id != event.event_id:
        return []  # the event had no effect, so nothing follows from it
    facts = FactWriter(event, projection.epoch, policy.durations, now)
    if (
        event.kind is Kind.NODE_INTROSPECTION
        and projection.current_state is State.PENDING_REGISTRATION
    ):
        return _answer_introspection(projection, event.node_id, policy, facts)
    if event.kind is Kind.NODE_ACK:
        return [facts.write(Kind.NODE_REGISTERED, _registered(projection, event.node_id, policy))]
    if event.kind is Kind.NODE_SHUTDOWN:
        reason = event.payload.reason if isinstance(event.payload, ShutdownPayload) else None
        farewell = DeregisteredPayload(
            node_id=event.node_id,
            epoch=projection.epoch,
            reason=reason,
            deregistered_at=max(now, event.occurred_at),
        )
        return [facts.write(Kind.NODE_DEREGISTERED, farewell)]
    return []


def _answer_introspection(
    projection: ModelRegistrationProjection,
    node_id: str,
    policy: RegistrationPolicy,
    facts: FactWriter,
) -> list[LogEvent]:
    epoch = projection.epoch
    rejection = judge(projection, policy)
    if rejection is not None:
        failure = RegistrationFailedPayload(
            node_id=node_id,
            epoch=epoch,
            error_code=rejection.code,
            error_message=rejection.message,
            retry_eligible=False,
        )
        return [facts.write(Kind.REGISTRATION_FAILED, failure)]
    request = AckRequestedPayload(
        node_id=node_id,
        epoch=epoch,
        ack_timeout_seconds=policy.durations.ack.total_seconds(),
    )
    return [
        facts.write(Kind.NODE_ACCEPTED, AcceptedPayload(node_id=node_id, epoch=epoch)),
        facts.write(Kind.ACK_REQUESTED, request),
    ]


def _registered(
    projection: ModelRegistrationProjection, node_id: str, policy: RegistrationPolicy
) -> RegisteredPayload:
    return RegisteredPayload(
        node_id=node_id,
        epoch=projection.epoch,
        registration_id=f"{projection.entity_id}/{projection.epoch}",
        ttl_seconds=policy.durations.first_liveness.total_seconds(),
    )


def _ask_to_introspect(
    projection: ModelRegistrationProjection | None,
    event: LogEvent,
    node_id: str,
    policy: RegistrationPolicy,
    now: datetime,
) -> list[LogEvent]:
    """A node beats that has no life here: ask it to introspect, once per interval.

    The id is that of the interval, so every further request within it is a duplicate of the first,
    in whichever batch or process it is made.
    """
    if event.kind is not Kind.NODE_HEARTBEAT:
        return []
    if projection is not None and projection.tenant != event.tenant:
        return []
    interval = (event.occurred_at - _ORIGIN) // policy.request_interval
    facts = FactWriter(
        event,
        FIRST_EPOCH if projection is None else projection.epoch,
        policy.durations,
        now,
        cause_name=f"interval {interval}",
    )
    request = IntrospectionRequestedPayload(
        request_id=f"{event.entity.entity_id}/{interval}",
        target_node_ids=(node_id,),
        reason="heartbeat_without_registration",
    )
    return [facts.write(Kind.INTROSPECTION_REQUESTED, request)]


@lru_cache(maxsize=1024)
def _version_matches(version: str | None, rule: str) -> bool:
    if not rule:
        return True
    try:
        return SpecifierSet(rule).contains(Version(version or ""), prereleases=True)
    except InvalidVersion:
        return False


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(str(name) for name in names)) or "none"
