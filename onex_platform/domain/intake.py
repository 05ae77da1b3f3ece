"""The door of the log: a Kafka record becomes an event, or is parked with its reason.

Every record that is read leaves here as one or the other; nothing is skipped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from onex_platform.domain.deadlines import Durations
from onex_platform.domain.envelope import (
    UPCASTERS,
    EnumParkReason,
    ModelEventEnvelope,
    Unreadable,
    UpcasterRegistry,
    parse_envelope,
    parse_payload,
)
from onex_platform.domain.events import EVENT_TYPE_PREFIX, EnumEventKind, LogEvent, Provenance
from onex_platform.domain.headers import (
    NOTHING_ASKED,
    TENANT,
    EnumHeaderFinding,
    EnumOnRead,
    HeaderRules,
    Headers,
    findings,
    text_of,
)
from onex_platform.domain.identity import (
    REGISTRATION_DOMAIN,
    EntityKey,
    NodeIdentity,
    identify_admitted,
)
from onex_platform.domain.payloads import (
    MAX_EPOCH,
    NodePayload,
    Payload,
    TimeoutPayload,
)

# A key that is not its field costs the order of its node's events, but says nothing untrue.
PARKED_FOR = frozenset(EnumHeaderFinding) - {EnumHeaderFinding.KEY}
_TENANT = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
# A life that a node numbers itself leaves as many numbers again for the lives that follow it.
_MOST_OWN_EPOCH = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRecord:
    """A Kafka record as it was read, and what the catalogue says about its topic."""

    topic: str
    partition: int
    offset: int
    timestamp: datetime | None
    append_time: bool  # the broker's clock set the timestamp, not the producer's
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    kind: EnumEventKind
    legacy: bool = False
    asked: HeaderRules = NOTHING_ASKED


@dataclass(frozen=True, slots=True)
class Parked:
    """A record that can't enter the log, for the parking lot."""

    record: RawRecord
    reason: EnumParkReason
    detail: str


class Signers(Protocol):
    """Whose signatures are taken."""

    def require_signed(self, topic: str, key: bytes | None, value: bytes, headers: Headers) -> None:
        """Raises `Unreadable` unless the record stands as somebody signed it who is trusted."""
        ...


class _TrustsNobody:
    def require_signed(self, topic: str, key: bytes | None, value: bytes, headers: Headers) -> None:
        raise Unreadable(EnumParkReason.UNKNOWN_KEY, "nobody's signatures are trusted here")


TRUSTS_NOBODY = _TrustsNobody()


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeRules:
    """What is in force while a batch is read; nothing of it is consulted again on replay."""

    default_tenant: str
    durations: Durations
    max_event_bytes: int = 1024 * 1024
    ledger_floor: datetime | None = None
    upcasters: UpcasterRegistry = UPCASTERS
    signers: Signers = TRUSTS_NOBODY


class Judged(NamedTuple):
    """What becomes of a record, and what is counted of an event's headers and key."""

    outcome: LogEvent | Parked
    findings: tuple[EnumHeaderFinding, ...] = ()


def admit(record: RawRecord, rules: IntakeRules, read_at: datetime) -> LogEvent | Parked:
    """`record` as an event that has no position yet, or parked.

    `read_at` bounds the time of records whose timestamp the producer set.
    """
    return judge(record, rules, read_at).outcome


def judge(record: RawRecord, rules: IntakeRules, read_at: datetime) -> Judged:
    """As `admit`, with what is to be counted of a record that is admitted."""
    try:
        return _judge(record, rules, read_at)
    except Unreadable as verdict:
        return Judged(Parked(record, verdict.reason, verdict.detail))


def _judge(record: RawRecord, rules: IntakeRules, read_at: datetime) -> Judged:
    if record.value is None:
        raise Unreadable(EnumParkReason.NO_VALUE, "the record has no value; events need a payload")
    if len(record.value) > rules.max_event_bytes:
        raise Unreadable(
            EnumParkReason.TOO_LARGE,
            f"{len(record.value)} bytes; at most {rules.max_event_bytes} are allowed",
        )
    if record.asked.signed:
        rules.signers.require_signed(record.topic, record.key, record.value, record.headers)
    envelope = parse_envelope(record.value)
    _check_event_type(envelope, record)
    _check_ledger(envelope, record.kind, rules)
    payload = parse_payload(record.kind, envelope.payload, envelope.schema_version, rules.upcasters)
    _check_epoch(payload, record.kind)
    tenant = _tenant_of(record, envelope, rules)
    node_id, identity = _identity_of(payload, envelope, tenant)
    found = _findings(record, envelope)
    occurred_at = occurrence_time(record, read_at)
    event = LogEvent(
        position=0,
        kind=record.kind,
        event_id=envelope.event_id,
        entity=EntityKey(REGISTRATION_DOMAIN, identity.entity_id),
        tenant=tenant,
        node_id=node_id,
        node_name=identity.node_name,
        epoch=payload.epoch if isinstance(payload, NodePayload) else None,
        occurred_at=occurred_at,
        payload=payload,
        deadline=(
            payload.deadline
            if isinstance(payload, TimeoutPayload)
            else rules.durations.granted_by(record.kind, occurred_at)
        ),
        reported_at=envelope.timestamp,
        correlation_id=envelope.correlation_id,
        provenance=Provenance(topic=record.topic, partition=record.partition, offset=record.offset),
    )
    return Judged(event, found)


def occurrence_time(record: RawRecord, read_at: datetime) -> datetime:
    """When the event occurred: by the broker's clock, or bounded by ours where it has none."""
    if record.timestamp is None:
        return read_at
    return record.timestamp if record.append_time else min(record.timestamp, read_at)


def most_epoch(kind: EnumEventKind) -> int:
    """The highest epoch that an event of this kind may bring into the log.

    Only an introspection gives a life its number, and the next life's must exist. Whatever else
    names an epoch names one that exists already, or has no effect.
    """
    return _MOST_OWN_EPOCH if kind is EnumEventKind.NODE_INTROSPECTION else MAX_EPOCH


def is_ledgered(kind: EnumEventKind) -> bool:
    """Whether an event's id is let into the log once, and the verdict written there.

    Heartbeats merge by maximum: they are idempotent by nature and stay out of the ledger.
    """
    return kind is not EnumEventKind.NODE_HEARTBEAT


def is_tenant(name: str) -> bool:
    """Whether a tenant may be called that."""
    return len(name) <= 63 and _TENANT.fullmatch(name) is not None


def _check_event_type(envelope: ModelEventEnvelope, record: RawRecord) -> None:
    if envelope.event_type == record.kind.event_type:
        return
    if record.legacy and not envelope.event_type.startswith(EVENT_TYPE_PREFIX):
        return  # a legacy topic's events carry names from before the platform's namespace
    known = envelope.event_type in {kind.event_type for kind in EnumEventKind}
    raise Unreadable(
        EnumParkReason.WRONG_EVENT_TYPE if known else EnumParkReason.UNKNOWN_EVENT_TYPE,
        f"event_type={envelope.event_type!r}; this topic carries {record.kind.event_type!r}",
    )


def _check_ledger(envelope: ModelEventEnvelope, kind: EnumEventKind, rules: IntakeRules) -> None:
    """An event from before the ledger's memory might be a duplicate whose id was pruned."""
    if not is_ledgered(kind) or rules.ledger_floor is None:
        return
    if envelope.timestamp < rules.ledger_floor:
        raise Unreadable(
            EnumParkReason.BEYOND_LEDGER,
            f"timestamp={envelope.timestamp.isoformat()} is before {rules.ledger_floor.isoformat()}"
            ", as far as event ids are remembered; it may be a duplicate",
        )


def _check_epoch(payload: Payload, kind: EnumEventKind) -> None:
    epoch = payload.epoch if isinstance(payload, NodePayload) else None
    if epoch is not None and epoch > (most := most_epoch(kind)):
        raise Unreadable(
            EnumParkReason.BAD_PAYLOAD,
            f"epoch={epoch}: at most {most}, so that there is a number for the lives behind it",
        )


def _tenant_of(record: RawRecord, envelope: ModelEventEnvelope, rules: IntakeRules) -> str:
    """The tenant that topic, header and envelope agree on, as far as they name one."""
    header, topic = text_of(record.headers, TENANT), record.asked.tenant
    claims = [claim for claim in (topic, header, envelope.tenant) if claim is not None]
    if len(set(claims)) > 1:
        raise Unreadable(
            EnumParkReason.BAD_TENANT,
            f"the topic's tenant={topic!r}, header {TENANT}={header!r} and "
            f"tenant={envelope.tenant!r} contradict",
        )
    tenant = claims[0] if claims else rules.default_tenant
    if not is_tenant(tenant):
        raise Unreadable(
            EnumParkReason.BAD_TENANT,
            f"tenant={tenant[:80]!r}; expected lower-case words joined by '-', at most 63 long",
        )
    return tenant


def _findings(record: RawRecord, envelope: ModelEventEnvelope) -> tuple[EnumHeaderFinding, ...]:
    """What is to be counted; where the contract parks for headers, raises `Unreadable`."""
    asked = record.asked
    found = dict(
        findings(
            record.headers,
            asked,
            source=envelope.source,
            key=record.key,
            keyed=_text(envelope.payload.get(asked.key or "")),
        )
    )
    wrong = [detail for finding, detail in found.items() if finding in PARKED_FOR]
    if wrong and asked.on_read is EnumOnRead.PARK:
        raise Unreadable(EnumParkReason.BAD_HEADERS, "; ".join(wrong))
    return tuple(found)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _identity_of(
    payload: Payload, envelope: ModelEventEnvelope, tenant: str
) -> tuple[str | None, NodeIdentity]:
    if isinstance(payload, NodePayload):
        try:
            return payload.node_id, identify_admitted(payload.node_id, tenant)
        except ValueError as error:
            raise Unreadable(EnumParkReason.BAD_NODE_ID, str(error)) from None
    # An event about many nodes belongs to none: its own id is its place in the log.
    return None, NodeIdentity(envelope.event_id, None)
