"""The circuit breaker that every client shares (purgatory's, with our names and errors).

Five failures in a row open it; for a minute every call is refused at once with
`InfraUnavailableError`; then one trial call decides. State changes are logged and handed to
listeners, so that they can become `circuit_breaker.state_changed` events or metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from purgatory import SyncCircuitBreakerFactory
from purgatory.domain.messages.events import ContextChanged
from purgatory.domain.model import OpenedState

from onex_platform.errors import InfraConnectionError, InfraTimeoutError, InfraUnavailableError
from onex_platform.settings import BreakerSettings
from onex_platform.telemetry import get_logger

_COUNTED = (InfraConnectionError, InfraTimeoutError)


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
        self._state = "CLOSED"
        factory = SyncCircuitBreakerFactory(
            default_threshold=self._settings.failure_threshold,
            default_ttl=self._settings.reset_seconds,
            exclude=[(BaseException, lambda error: not isinstance(error, _COUNTED))],
        )
        factory.add_listener(self._on_event)
        self._factory = factory

    @property
    def state(self) -> str:
        """CLOSED, OPEN or HALF_OPEN, as of the last call."""
        return self._state

    def add_listener(self, listener: Callable[[BreakerStateChange], None]) -> None:
        self._listeners.append(listener)

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Run the block if the breaker lets it, and count how it ended."""
        try:
            with self._factory.get_breaker(self.service_name):
                yield
        except OpenedState as opened:
            raise InfraUnavailableError(
                f"{self.service_name} failed {self._settings.failure_threshold} times in a row; "
                "calls are refused for now.",
                hint=f"The next trial is at most {self._settings.reset_seconds:g} s away.",
                service_name=self.service_name,
            ) from opened

    def _on_event(self, _name: str, kind: str, event: object) -> None:
        if kind != "state_changed" or not isinstance(event, ContextChanged):
            return
        new = {"closed": "CLOSED", "opened": "OPEN", "half-opened": "HALF_OPEN"}[event.state]
        change = BreakerStateChange(
            service_name=self.service_name,
            previous_state=self._state,
            new_state=new,
            failure_count=self._settings.failure_threshold if new == "OPEN" else 0,
            reset_timeout_seconds=self._settings.reset_seconds,
        )
        self._state = new
        get_logger(__name__).warning("circuit_breaker.state_changed", **vars(change))
        for listener in self._listeners:
            listener(change)
