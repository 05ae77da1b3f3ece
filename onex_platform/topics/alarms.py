"""Failures of the platform itself as events: what failed, where, and without secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID, uuid5

from onex_platform.base.errors import InfraError
from onex_platform.base.faults import effect
from onex_platform.base.settings import Settings
from onex_platform.base.telemetry import get_logger, redact_value
from onex_platform.domain.envelope import ModelEventEnvelope
from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.payloads import ErrorDetectedPayload
from onex_platform.topics.catalogue import Catalogue
from onex_platform.topics.signals import Signal, send_signals

_KIND = EnumEventKind.ERROR_DETECTED
# Enough to see what failed; a record holds a megabyte at most.
_MOST_MESSAGE = 8000
_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """A failure, named by `correlation_id`: who reports it twice reports one event."""

    correlation_id: UUID
    error: str  # the error's class
    message: str
    operation: str
    occurred_at: datetime
    context: Mapping[str, Any]
    severity: str = "error"


def raise_alarms(settings: Settings, catalogue: Catalogue, alarms: Sequence[Alarm]) -> int:
    """Publish the failures and wait for the broker, not for long; how many it acknowledged."""
    return send_signals(settings, catalogue, [signal_of(alarm) for alarm in alarms])


def tell(
    settings: Settings, catalogue: Catalogue, what: str, point: str, alarms: Sequence[Alarm]
) -> int:
    """Log failures and publish them; how many the broker acknowledged.

    For those who note what was told, and tell the rest again: a broker that does not answer fails
    nobody. `what` names the log entries, `point` is the crash point.
    """
    log = get_logger(__name__)
    for alarm in alarms:
        log.error(what, **alarm.context)
    try:
        with effect(point):
            return raise_alarms(settings, catalogue, alarms)
    except InfraError as error:
        log.warning(f"{what}_not_published", error=error)
        return 0


def envelope_of(alarm: Alarm, tenant: str) -> ModelEventEnvelope:
    """The failure as other systems read it."""
    return signal_of(alarm).envelope(tenant)


def signal_of(alarm: Alarm) -> Signal:
    """The failure as a signal; every text has lost its secrets."""
    return Signal(
        kind=_KIND,
        key=str(alarm.correlation_id),
        event_id=uuid5(alarm.correlation_id, _KIND.event_type),
        correlation_id=alarm.correlation_id,
        occurred_at=alarm.occurred_at,
        payload=ErrorDetectedPayload(
            error_code=error_code(alarm.error),
            severity=alarm.severity,
            message=told(alarm.message),
            operation=alarm.operation,
            context=redact_value("context", dict(alarm.context)),
        ),
    )


def told(message: str) -> str:
    """What is told of an error's message: no secret, and no more of it than a record can hold."""
    redacted: str = redact_value("message", message)
    return redacted[:_MOST_MESSAGE]


def error_code(error: str) -> str:
    """The code of an error's class."""
    return _CAPITAL.sub("_", error).upper()
