"""The circuit breaker that every client shares (purgatory's state machine, our names and errors).

Five failures in a row open it; for a minute every call is refused at once with
`InfraUnavailableError`; then one trial call decides, and the others are refused until it has. No
lock is held while a call runs. State changes are logged and handed to listeners, so that they can
become `circuit_breaker.state_changed` events or metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from threading import Lock

from purgatory.domain.messages.events import ContextChanged
from purgatory.domain.model import CLOSED, HALF_OPENED, OPENED, Context, OpenedState

from onex_platform.base.errors import (
    InfraConnectionError,
    InfraTimeoutError,
    InfraUnavailableError,
    interruption_behind,
)
from onex_platform.base.settings import BreakerSettings
from onex_platform.base.telemetry import get_logger

_COUNTED = (InfraConnectionError, InfraTimeoutError)
_STATES = {CLOSED: "CLOSED", OPENED: "OPEN", HALF_OPENED: "HALF_OPEN"}


@dataclass(frozen=True)
class BreakerStateChange:
    """What a listener hears; the fields are those of `circuit_breaker.state_changed`."""

    service_name: str
    previous_state: str
    new_state: str
    failure_count: int
    reset_timeout_seconds: float


class CircuitBreaker:
    """Guards calls to one service; only connection failures and time-outs count against it."""

    def __init__(self, service_name: str, settings: BreakerSettings | None = None) -> None:
        self.service_name = service_name
        self._settings = settings or BreakerSettings()
        self._listeners: list[Callable[[BreakerStateChange], None]] = []
        self._state = _STATES[CLOSED]
        self._period = 0  # rises with every state change
        self._lock = Lock()
        self._context = Context(
            service_name,
            self._settings.failure_threshold,
            self._settings.reset_seconds,
            exclude=[(BaseException, lambda error: not isinstance(error, _COUNTED))],
        )

    @property
    def state(self) -> str:
        """CLOSED, OPEN or HALF_OPEN, as of the last call."""
        return self._state

    def add_listener(self, listener: Callable[[BreakerStateChange], None]) -> None:
        self._listeners.append(listener)

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Run the block if the breaker lets it, and count how it ended."""
        period = self._enter()
        try:
            yield
        except BaseException as error:
            if (told_to_end := interruption_behind(error)) is not None and told_to_end is not error:
                self._leave(period, told_to_end)
                raise told_to_end from error
            self._leave(period, error)
            raise
        self._leave(period, None)

    def _enter(self) -> int:
        with self._lock:
            refused = self._context.state == HALF_OPENED  # somebody else's trial is under way
            try:
                self._context.handle_new_request()
            except OpenedState:
                refused = True
            changes = self._take_changes()
            period = self._period
        self._announce(changes)
        if refused:
            raise InfraUnavailableError(
                f"{self.service_name} failed {self._settings.failure_threshold} times in a row; "
                "calls are refused for now.",
                hint=f"The next trial is at most {self._settings.reset_seconds:g} s away.",
                service_name=self.service_name,
            )
        return period

    def _leave(self, period: int, error: BaseException | None) -> None:
        with self._lock:
            if period != self._period:
                return  # the call began before the state changed: it is no verdict on this one
            if error is None:
                self._context.handle_end_request()
            else:
                self._context.handle_exception(error)
            changes = self._take_changes()
        self._announce(changes)

    def _take_changes(self) -> list[BreakerStateChange]:
        changes = []
        for message in self._context.messages:
            if not isinstance(message, ContextChanged):
                continue
            new = _STATES[message.state]
            failures = self._settings.failure_threshold if message.state == OPENED else 0
            changes.append(
                BreakerStateChange(
                    service_name=self.service_name,
                    previous_state=self._state,
                    new_state=new,
                    failure_count=failures,
                    reset_timeout_seconds=self._settings.reset_seconds,
                )
            )
            self._state = new
            self._period += 1
        self._context.messages.clear()
        return changes

    def _announce(self, changes: list[BreakerStateChange]) -> None:
        for change in changes:
            get_logger(__name__).warning("circuit_breaker.state_changed", **vars(change))
            for listener in (*self._listeners, *_everywhere):
                listener(change)


# They hear the changes of every breaker of this process.
_everywhere: list[Callable[[BreakerStateChange], None]] = []


@contextmanager
def heard_by(listener: Callable[[BreakerStateChange], None]) -> Iterator[None]:
    """Let a listener hear, during the block, the changes of every breaker of this process."""
    _everywhere.append(listener)
    try:
        yield
    finally:
        _everywhere.remove(listener)


@cache
def shared_breaker(service_name: str, settings: BreakerSettings) -> CircuitBreaker:
    """The one breaker of this process for a service: its clients learn from each other."""
    return CircuitBreaker(service_name, settings)
