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
from onex_platform.domain.envelope import UPCASTERS, ModelEventEnvelope
from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.payloads import ErrorDetectedPayload
from onex_platform.engines.kafka.clients import open_producer, produce_all
from onex_platform.records.wrapping import Wrapper
from onex_platform.topics.catalogue import Catalogue

_KIND = EnumEventKind.ERROR_DETECTED
_SOURCE = "onex-platform"
# Whoever raises an alarm has other work to do, and raises it again if it was not heard.
_PATIENCE_SECONDS = 3.0
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


def raise_alarms(settings: Settings, catalogue: Catalogue, alarms: Sequence[Alarm]) -> int:
    """Publish the failures and wait for the broker; how many it acknowledged.

    A broker that does not answer costs a few seconds, whatever others grant it.
    """
    rules, wrapper = catalogue.for_kind(_KIND).publish_rules, Wrapper(settings)
    with open_producer(_impatient(settings)) as producer:
        return produce_all(
            producer,
            (
                wrapper.wrap(
                    rules,
                    str(alarm.correlation_id),
                    envelope_of(alarm, settings.tenant).model_dump_json(),
                )
                for alarm in alarms
            ),
        )


def tell(
    settings: Settings, catalogue: Catalogue, what: str, point: str, alarms: Sequence[Alarm]
) -> int:
    """Log failures and publish them; how many the broker acknowledged.

    For those who note what was told, and tell the rest again: a broker that does not answer fails
    nobody. `what` names the log entries, `point` is the crash point.
    """
    if not alarms:
        return 0
    log = get_logger(__name__)
    for alarm in alarms:
        log.error(what, **alarm.context)
    try:
        with effect(point):
            return raise_alarms(settings, catalogue, alarms)
    except InfraError as error:
        log.warning(f"{what}_not_published", error=error)
        return 0


def _impatient(settings: Settings) -> Settings:
    kafka = settings.kafka
    limits = {
        "connect_timeout_seconds": min(kafka.connect_timeout_seconds, _PATIENCE_SECONDS),
        "request_timeout_seconds": min(kafka.request_timeout_seconds, _PATIENCE_SECONDS),
        "delivery_timeout_seconds": min(kafka.delivery_timeout_seconds, _PATIENCE_SECONDS),
    }
    return settings.model_copy(update={"kafka": kafka.model_copy(update=limits)})


def envelope_of(alarm: Alarm, tenant: str) -> ModelEventEnvelope:
    """The failure as other systems read it; every text has lost its secrets."""
    payload = ErrorDetectedPayload(
        error_code=_CAPITAL.sub("_", alarm.error).upper(),
        severity="error",
        message=redact_value("message", alarm.message),
        operation=alarm.operation,
        context=redact_value("context", dict(alarm.context)),
    )
    return ModelEventEnvelope(
        event_id=uuid5(alarm.correlation_id, _KIND.event_type),
        event_type=_KIND.event_type,
        source=_SOURCE,
        correlation_id=alarm.correlation_id,
        timestamp=alarm.occurred_at,
        schema_version=UPCASTERS.current_version(_KIND),
        tenant=tenant,
        payload=payload.model_dump(mode="json", exclude_none=True),
    )
