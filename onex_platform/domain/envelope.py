"""From a record's bytes to an envelope and a payload of the newest version, or a reason to park.

Old payload versions are lifted step by step by registered upcasters. A kind or version that this
release does not know is parked, never dropped: after an upgrade the parked bytes are read again.

The log keeps a payload in the version that was newest when it entered, and says which: the first
as it is, every later one as `{"$version": 2, "payload": {…}}`. Each kind's payload has a field that
must be there, so no payload looks like that by itself. Whoever reads the log gets the newest
version, lifted by the same steps.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Annotated, Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json, to_json

from onex_platform.domain import payloads as p
from onex_platform.domain.events import EnumEventKind

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]

PAYLOADS: Mapping[EnumEventKind, type[p.Payload]] = {
    EnumEventKind.NODE_INTROSPECTION: p.IntrospectionPayload,
    EnumEventKind.NODE_HEARTBEAT: p.HeartbeatPayload,
    EnumEventKind.NODE_SHUTDOWN: p.ShutdownPayload,
    EnumEventKind.NODE_ACK: p.AckPayload,
    EnumEventKind.INTROSPECTION_REQUESTED: p.IntrospectionRequestedPayload,
    EnumEventKind.NODE_ACCEPTED: p.AcceptedPayload,
    EnumEventKind.ACK_REQUESTED: p.AckRequestedPayload,
    EnumEventKind.NODE_REGISTERED: p.RegisteredPayload,
    EnumEventKind.REGISTRATION_FAILED: p.RegistrationFailedPayload,
    EnumEventKind.ACK_TIMED_OUT: p.TimeoutPayload,
    EnumEventKind.LIVENESS_EXPIRED: p.TimeoutPayload,
    EnumEventKind.NODE_DEREGISTERED: p.DeregisteredPayload,
    EnumEventKind.WORKFLOW_STARTED: p.WorkflowPayload,
    EnumEventKind.WORKFLOW_COMPLETED: p.WorkflowPayload,
    EnumEventKind.WORKFLOW_FAILED: p.WorkflowFailedPayload,
    EnumEventKind.BREAKER_STATE_CHANGED: p.BreakerStateChangedPayload,
    EnumEventKind.ERROR_DETECTED: p.ErrorDetectedPayload,
}


class EnumParkReason(StrEnum):
    """Why a record could not enter the log; the original bytes are kept with it."""

    TOO_LARGE = "too_large"
    NO_VALUE = "no_value"
    NOT_JSON = "not_json"
    BAD_ENVELOPE = "bad_envelope"
    UNKNOWN_EVENT_TYPE = "unknown_event_type"
    WRONG_EVENT_TYPE = "wrong_event_type"
    UNKNOWN_VERSION = "unknown_version"
    BAD_PAYLOAD = "bad_payload"
    BAD_NODE_ID = "bad_node_id"
    BAD_TENANT = "bad_tenant"
    BEYOND_LEDGER = "beyond_ledger"
    BAD_HEADERS = "bad_headers"
    UNSIGNED = "unsigned"
    BAD_SIGNATURE = "bad_signature"
    UNKNOWN_KEY = "unknown_key"


class Unreadable(Exception):  # noqa: N818 - a verdict that travels up to the intake, not an error
    """A record can't become an event; `reason` and `detail` go into the parking lot."""

    def __init__(self, reason: EnumParkReason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class ModelEventEnvelope(BaseModel):
    """The envelope around every payload. Unknown fields are kept; a naive timestamp is refused."""

    model_config = ConfigDict(extra="allow", frozen=True)

    event_id: UUID
    event_type: str
    source: str = ""
    correlation_id: UUID | None = None
    timestamp: Annotated[p.Instant, Field(description="the sender's clock: informs only")]
    schema_version: Annotated[int, Field(ge=1)] = 1
    tenant: str | None = None
    payload: dict[str, Any]


class UpcasterRegistry:
    """Functions that lift a payload of one kind from one version to the next."""

    def __init__(self) -> None:
        self._steps: dict[tuple[EnumEventKind, int], Upcaster] = {}

    def register(self, kind: EnumEventKind, from_version: int, step: Upcaster) -> None:
        if (kind, from_version) in self._steps:
            raise ValueError(f"{kind} version {from_version} has an upcaster already")
        self._steps[kind, from_version] = step

    def current_version(self, kind: EnumEventKind) -> int:
        version = 1
        while (kind, version) in self._steps:
            version += 1
        return version

    def upcast(self, kind: EnumEventKind, version: int, payload: dict[str, Any]) -> dict[str, Any]:
        """`payload` in the newest version; raises `Unreadable` for a version we don't know yet."""
        newest = self.current_version(kind)
        if version > newest:
            raise Unreadable(
                EnumParkReason.UNKNOWN_VERSION,
                f"schema_version {version} of {kind} is newer than {newest}, the newest known here",
            )
        for step in range(version, newest):
            payload = self._steps[kind, step](dict(payload))
        return payload


UPCASTERS = UpcasterRegistry()
_KEPT_VERSION, _KEPT_PAYLOAD = "$version", "payload"
_KEPT = {_KEPT_VERSION, _KEPT_PAYLOAD}
# A record of a megabyte may have a hundred thousand broken fields.
_MOST_PROBLEMS = 10
# What a number that a double can't hold has in its spelling; most that has it is no such number.
_HUGE = re.compile(rb"[eE]\+?[0-9]{3}|[0-9]{300}")


def parse_envelope(value: bytes) -> ModelEventEnvelope:
    """The envelope in `value`; raises `Unreadable` with the field, the value and the rule."""
    try:
        document = from_json(value, allow_inf_nan=False)
    except ValueError as error:
        raise Unreadable(EnumParkReason.NOT_JSON, str(error)) from None
    if b"\\u0000" in value and _holds(document, _is_nul):
        # PostgreSQL stores no NUL in text or JSONB: one such record would sink its whole batch.
        raise Unreadable(EnumParkReason.BAD_PAYLOAD, "a string holds the character U+0000")
    if _HUGE.search(value) and _holds(document, _is_infinite):
        raise Unreadable(EnumParkReason.BAD_PAYLOAD, "a number is larger than 1.8e308")
    try:
        return ModelEventEnvelope.model_validate(document)
    except ValidationError as error:
        raise Unreadable(EnumParkReason.BAD_ENVELOPE, explain(error)) from None


def parse_payload(
    kind: EnumEventKind,
    payload: dict[str, Any],
    version: int = 1,
    upcasters: UpcasterRegistry = UPCASTERS,
) -> p.Payload:
    """The typed payload of `kind`; raises `Unreadable` with the field, the value and the rule."""
    try:
        return PAYLOADS[kind].model_validate(upcasters.upcast(kind, version, payload))
    except ValidationError as error:
        raise Unreadable(EnumParkReason.BAD_PAYLOAD, explain(error)) from None


def kept_payload(
    kind: EnumEventKind, payload: p.Payload, upcasters: UpcasterRegistry = UPCASTERS
) -> p.Payload | dict[str, Any]:
    """The payload as a document of the log."""
    version = upcasters.current_version(kind)
    return payload if version == 1 else {_KEPT_VERSION: version, _KEPT_PAYLOAD: payload}


def kept_text(
    kind: EnumEventKind, payload: p.Payload, upcasters: UpcasterRegistry = UPCASTERS
) -> str:
    """The same as JSON."""
    kept = kept_payload(kind, payload, upcasters)
    return payload.model_dump_json() if kept is payload else to_json(kept).decode()


def read_kept(
    kind: EnumEventKind,
    kept: dict[str, Any] | str | bytes,
    upcasters: UpcasterRegistry = UPCASTERS,
) -> p.Payload:
    """A payload of the log in the newest version; one of a later release raises `Unreadable`."""
    document: dict[str, Any] = kept if isinstance(kept, dict) else from_json(kept)
    if document.keys() == _KEPT:
        return parse_payload(kind, document[_KEPT_PAYLOAD], document[_KEPT_VERSION], upcasters)
    return parse_payload(kind, document, 1, upcasters)


def explain(error: ValidationError) -> str:
    """One sentence per broken field: name, value, rule. Of many, the first few."""
    sentences = [
        f"{'.'.join(map(str, problem['loc'])) or 'document'}="
        f"{_shortened(problem.get('input'))}: {problem['msg']}"
        for problem in error.errors(include_url=False, include_context=False)[:_MOST_PROBLEMS]
    ]
    more = error.error_count() - len(sentences)
    return "; ".join([*sentences, f"and {more} more"] if more else sentences)


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"


def _holds(value: Any, is_bad: Callable[[Any], bool]) -> bool:
    """Whether something bad stands anywhere in a document."""
    if isinstance(value, dict):
        return any(is_bad(key) or _holds(item, is_bad) for key, item in value.items())
    if isinstance(value, list):
        return any(_holds(item, is_bad) for item in value)
    return is_bad(value)


def _is_nul(value: Any) -> bool:
    return isinstance(value, str) and "\x00" in value


def _is_infinite(value: Any) -> bool:
    return isinstance(value, float) and math.isinf(value)
