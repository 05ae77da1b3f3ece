"""What the canary says in a life, what it waits to see, and what that amounts to. Pure.

A life goes from an introspection to a shutdown: the steps of `STEPS`, one after the other. What is
said twice has the same event id, so a tick that was killed is repeated by the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID, uuid5

from onex_platform.domain.envelope import UPCASTERS, ModelEventEnvelope
from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.identity import CANARY_ID, CANARY_NODE, CANARY_TENANT
from onex_platform.domain.states import EnumNodeType

Kind = EnumEventKind


class Step(NamedTuple):
    """One step of a life: something that the canary `says`, or else waits to see."""

    name: str
    says: EnumEventKind | None = None


STEPS = (
    Step("introspected", Kind.NODE_INTROSPECTION),
    Step("ack_requested"),
    Step("acknowledged", Kind.NODE_ACK),
    Step("registered"),
    Step("beaten", Kind.NODE_HEARTBEAT),
    Step("alive"),
    Step("published"),
    Step("left", Kind.NODE_SHUTDOWN),
    Step("deregistered"),
)
# What the operator measures: from one step to the other.
MEASURES = {
    "introspection to ack request": ("introspected", "ack_requested"),
    "ack to registration": ("acknowledged", "registered"),
    "heartbeat to liveness": ("beaten", "alive"),
    "row to snapshot": ("registered", "published"),
    "shutdown to deregistration": ("left", "deregistered"),
}
_SOURCE = f"node/{CANARY_NODE}"


@dataclass(frozen=True, slots=True)
class Life:
    """A life of the canary, as far as it has come."""

    epoch: int
    begun_at: datetime
    steps: Mapping[str, datetime] = field(default_factory=dict)
    ended_at: datetime | None = None
    stopped_at: str | None = None

    @property
    def next_step(self) -> Step | None:
        """The first step that is missing; None: it has been through everything."""
        return next((step for step in STEPS if step.name not in self.steps), None)

    def seconds(self) -> dict[str, float]:
        """How long each stretch took that it has been through."""
        return {
            name: (self.steps[end] - self.steps[start]).total_seconds()
            for name, (start, end) in MEASURES.items()
            if start in self.steps and end in self.steps
        }


def is_due(last: Life | None, now: datetime, period: timedelta) -> bool:
    """Whether the next life may begin."""
    return last is None or (last.ended_at is not None and now >= last.begun_at + period)


def is_stuck(life: Life, now: datetime, period: timedelta) -> bool:
    """Whether a life has had its time and is not through."""
    return life.next_step is not None and now >= life.begun_at + period


def next_epoch(last: Life | None, now: datetime) -> int:
    """The number of the next life: higher than all, also if the book of lives was lost."""
    return max(int(now.timestamp() * 1000), 0 if last is None else last.epoch + 1)


def said(kind: EnumEventKind, life: Life, now: datetime) -> ModelEventEnvelope:
    """What the canary sends; its id follows from life and kind."""
    payload: dict[str, Any] = {"node_id": CANARY_NODE, "epoch": life.epoch}
    if kind is Kind.NODE_INTROSPECTION:
        payload |= {"node_type": EnumNodeType.EFFECT.value, "node_version": "1.0.0"}
    if kind is Kind.NODE_SHUTDOWN:
        payload["reason"] = "The life of the canary is over."
    return ModelEventEnvelope(
        event_id=event_id(life, kind),
        event_type=kind.event_type,
        source=_SOURCE,
        correlation_id=uuid5(CANARY_ID, str(life.epoch)),
        timestamp=now,
        schema_version=UPCASTERS.current_version(kind),
        tenant=CANARY_TENANT,
        payload=payload,
    )


def event_id(life: Life, kind: EnumEventKind) -> UUID:
    return uuid5(CANARY_ID, f"{life.epoch} {kind}")
