"""Settings of what watches the service and tells of it; `settings.py` has the others."""

from typing import Literal

from pydantic import Field

from onex_platform.base.server_settings import Group, Seconds


class HealthSettings(Group):
    """How much is measured, and how often all nodes may be asked."""

    sample_heartbeats: int = Field(
        20_000, ge=1, description="maximum heartbeats that one measurement reads from the pages"
    )
    broadcast_seconds: Seconds = Field(
        300, description="minimum time between two broadcasts of introspection requests to a tenant"
    )
    lease_beat_seconds: Seconds = Field(
        10, description="interval between two signs of life of whoever holds a lease"
    )
    lease_silence_seconds: Seconds = Field(
        60, description="silence after which a holder or consumer that gave signs of life is missed"
    )


class CanarySettings(Group):
    """The platform's own node and samples, which show where the way through it is interrupted."""

    enabled: bool = Field(False, description="send canaries; samples go to other services' topics")
    period_seconds: float = Field(
        300,
        ge=1,
        le=86400,
        description="interval between canaries; each must be through, and each sample read, in it",
    )


class LogSettings(Group):
    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    style: Literal["console", "json"] = "console"
