"""Short ways to write records, events and rows in tests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

from onex_platform.domain.deadlines import Durations
from onex_platform.domain.envelope import parse_payload
from onex_platform.domain.events import EnumEventKind, LogEvent, Provenance
from onex_platform.domain.identity import REGISTRATION_DOMAIN, EntityKey
from onex_platform.domain.intake import IntakeRules, RawRecord
from onex_platform.domain.projection import ModelRegistrationProjection
from onex_platform.domain.states import EnumNodeType, EnumRegistrationState

Kind = EnumEventKind
State = EnumRegistrationState

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
NODE = UUID("00000000-0000-4000-8000-000000000001")
TENANT = "omnibase"
DURATIONS = Durations()
RULES = IntakeRules(default_tenant=TENANT, durations=DURATIONS)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def number_id(number: int) -> UUID:
    """A readable, reproducible id."""
    return uuid5(NODE, str(number))


def payload_fields(kind: EnumEventKind, node_id: str, **fields: Any) -> dict[str, Any]:
    """The smallest valid payload of `kind`, with `fields` on top."""
    if kind is Kind.INTROSPECTION_REQUESTED:
        smallest: dict[str, Any] = {"request_id": "request-1"}
    else:
        smallest = {"node_id": node_id}
    if kind is Kind.NODE_INTROSPECTION:
        smallest["node_type"] = "EFFECT"
    if kind is Kind.REGISTRATION_FAILED:
        smallest |= {"error_code": "NO", "error_message": "not today", "retry_eligible": False}
    if kind in (Kind.ACK_TIMED_OUT, Kind.LIVENESS_EXPIRED):
        smallest["deadline"] = at(0).isoformat()
    return smallest | fields


def event(
    kind: EnumEventKind,
    position: int,
    seconds: float = 0,
    *,
    event_id: UUID | None = None,
    node: UUID = NODE,
    domain: str = REGISTRATION_DOMAIN,
    tenant: str = TENANT,
    epoch: int | None = None,
    deadline: datetime | None = None,
    duplicate: bool = False,
    **payload: Any,
) -> LogEvent:
    """An event in the log, `seconds` after START."""
    if deadline is not None:
        payload["deadline"] = deadline.isoformat()
    parsed = parse_payload(kind, payload_fields(kind, str(node), epoch=epoch, **payload))
    return LogEvent(
        position=position,
        kind=kind,
        event_id=event_id or number_id(position),
        entity=EntityKey(domain, node),
        tenant=tenant,
        node_id=str(node),
        epoch=epoch,
        occurred_at=at(seconds),
        payload=parsed,
        deadline=deadline or DURATIONS.granted_by(kind, at(seconds)),
        provenance=Provenance(topic="input", partition=0, offset=position),
        duplicate=duplicate,
    )


def row(state: EnumRegistrationState, **fields: Any) -> ModelRegistrationProjection:
    """A row in `state` at position 100, with its deadline armed where the state has one."""
    defaults: dict[str, Any] = {
        "entity_id": NODE,
        "tenant": TENANT,
        "current_state": state,
        "epoch": 1,
        "node_type": EnumNodeType.EFFECT,
        "introspected_at": at(-100),
        "last_state_change_at": at(-50),
        "last_applied_event_id": number_id(100),
        "last_applied_sequence": 100,
        "ack_deadline": at(30) if state.awaits_ack() else None,
        "liveness_deadline": at(60) if state.requires_liveness() else None,
    }
    return ModelRegistrationProjection(**(defaults | fields))


def record(
    kind: EnumEventKind,
    seconds: float = 0,
    *,
    topic: str = "input",
    partition: int = 0,
    offset: int = 0,
    node_id: Any = str(NODE),
    event_id: UUID | None = None,
    envelope: dict[str, Any] | None = None,
    headers: dict[str, bytes] | Sequence[tuple[str, bytes | None]] = (),
    append_time: bool = True,
    legacy: bool = False,
    value: bytes | None = None,
    **payload: Any,
) -> RawRecord:
    """A Kafka record, appended `seconds` after START; `envelope` overrides envelope fields."""
    document = {
        "event_id": str(event_id or number_id(offset)),
        "event_type": kind.event_type,
        "source": "tests",
        "correlation_id": str(number_id(-1)),
        "timestamp": at(seconds).isoformat(),
        "payload": payload_fields(kind, node_id, **payload),
    } | (envelope or {})
    return RawRecord(
        topic=topic,
        partition=partition,
        offset=offset,
        timestamp=at(seconds),
        append_time=append_time,
        key=str(node_id).encode(),
        value=json.dumps(document).encode() if value is None else value,
        headers=tuple(headers.items() if isinstance(headers, dict) else headers),
        kind=kind,
        legacy=legacy,
    )
