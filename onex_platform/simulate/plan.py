"""What a history is made from: the same plan and routes always give the same bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from onex_platform.base.errors import ConfigurationError
from onex_platform.base.settings import Settings
from onex_platform.domain.deadlines import Durations
from onex_platform.simulate.profiles import PROFILES, Profile
from onex_platform.simulate.scenarios import Unit

DEFAULT_SEED = 20250115
DEFAULT_START = datetime(2025, 1, 15, tzinfo=UTC)
DEFAULT_DURATION = timedelta(days=1)
BEATS_PER_LIVENESS = 3
_LIVES_NEED = 20  # liveness windows, for scripts to get anywhere
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPlan:
    """The parameters of a history.

    Scripts are paced by `windows`, the registration windows of the platform that will read the
    history, divided by `speed`. Deadlines are named by the windows themselves, because that is what
    the platform computes, whatever the speed. `registry` says whether the registry's own events
    are played as well; without them the platform's decider has to speak for the registry.
    """

    seed: int = DEFAULT_SEED
    nodes: int = 100
    start: datetime = DEFAULT_START
    duration: timedelta = DEFAULT_DURATION
    max_events: int | None = None
    profile: Profile = field(default_factory=lambda: PROFILES["default"])
    windows: Durations = field(default_factory=Durations)
    speed: float = 1.0
    registry: bool = True
    tenant: str = "omnibase"  # the tenant of records that name none
    other_tenants: tuple[str, ...] = ("acme", "globex")
    max_event_bytes: int = 1024 * 1024  # a larger record is parked

    def __post_init__(self) -> None:
        for name in ("nodes", "duration", "speed", "max_events"):
            value = getattr(self, name)
            if value is not None and value <= type(value)():
                raise ConfigurationError(
                    f"{name}={value} leaves nothing to simulate.", hint=f"Give a larger {name}."
                )
        if self.start.tzinfo is None:
            raise ConfigurationError(
                f"start={self.start.isoformat()} has no time zone.", hint="Add Z for UTC."
            )

    @property
    def start_ms(self) -> int:
        return (self.start - datetime(1970, 1, 1, tzinfo=UTC)) // _MILLISECOND

    @property
    def end_ms(self) -> int:
        """No record is as late as this."""
        return self.start_ms + max(1, self.duration // _MILLISECOND)

    def units_ms(self) -> dict[Unit, float]:
        """How long each unit of the scripts is in this history."""
        liveness = self.windows.heartbeat_liveness / _MILLISECOND / self.speed
        return {
            Unit.ACK: self.windows.ack / _MILLISECOND / self.speed,
            Unit.BEAT: liveness / BEATS_PER_LIVENESS,
            Unit.LIVENESS: liveness,
            Unit.HISTORY: self.duration / _MILLISECOND,
        }


def plan_for(
    settings: Settings,
    *,
    nodes: int,
    duration: timedelta | None = None,
    max_events: int | None = None,
    **parameters: Any,
) -> FleetPlan:
    """A plan for the platform with these settings; `parameters` are the plan's other fields.

    Without a duration it is as long as `max_events` need, or a day.
    """
    registration = settings.registration
    windows = Durations(
        ack=timedelta(seconds=registration.ack_seconds),
        first_liveness=timedelta(seconds=registration.first_liveness_seconds),
        heartbeat_liveness=timedelta(seconds=registration.heartbeat_liveness_seconds),
    )
    if duration is None and max_events is not None:
        duration = duration_for(max_events, nodes, windows)
    return FleetPlan(
        nodes=nodes,
        duration=DEFAULT_DURATION if duration is None else duration,
        max_events=max_events,
        windows=windows,
        tenant=settings.tenant,
        max_event_bytes=registration.max_event_bytes,
        **parameters,
    )


def duration_for(events: int, nodes: int, windows: Durations) -> timedelta:
    """About how long `nodes` need for `events`; the silences in the scripts are allowed for."""
    beats = windows.heartbeat_liveness / BEATS_PER_LIVENESS * (max(events, 1) / max(nodes, 1))
    return max(1.5 * beats, _LIVES_NEED * windows.heartbeat_liveness)
