"""The environment, decided once: every address, credential, duration and limit.

Variables are `ONEX_<GROUP>_<NAME>`, read from the process environment and from a `.env` file in
the working directory (the environment wins). An address that is not set means the embedded stack:
`onex_platform.stack.attach` fills it in. How variables are named, found and explained stands in
`onex_platform.base.environment`.
"""

from __future__ import annotations

from datetime import date
from typing import Literal, Self

from pydantic import (
    Field,
    ValidationError,
    model_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict

from onex_platform.base.environment import (
    ENV_FILE,
    PREFIX,
    WHERE_LISTED,
    explain,
    refuse_unknown_variables,
)
from onex_platform.base.errors import ConfigurationError
from onex_platform.base.server_settings import (
    BreakerSettings,
    Group,
    KafkaSettings,
    PostgresSettings,
    Seconds,
    SparkSettings,
    StackSettings,
    reveal,
)
from onex_platform.base.settings_rules import disagreements

__all__ = [
    "BreakerSettings",
    "DeadlinesSettings",
    "Environment",
    "KafkaSettings",
    "LogSettings",
    "PagesSettings",
    "PipelineSettings",
    "PostgresSettings",
    "RegistrationSettings",
    "Settings",
    "SnapshotsSettings",
    "SparkSettings",
    "StackSettings",
    "address_variables",
    "load_settings",
]

Environment = Literal["dev", "stage", "prod", "sand", "test"]


class RegistrationSettings(Group):
    """Durations and limits of the registration domain; changing one never rewrites history."""

    ack_seconds: Seconds = Field(30, description="time a node has to acknowledge")
    first_liveness_seconds: Seconds = Field(60, description="life granted by registration")
    heartbeat_seconds: Seconds = Field(30, description="how often nodes beat")
    heartbeat_liveness_seconds: Seconds = Field(90, description="life granted by each heartbeat")
    request_interval_seconds: Seconds = Field(
        300, description="at most one introspection request per node in this time"
    )
    ledger_days: int = Field(
        30, ge=1, le=3650, description="how long event ids are remembered; above every retention"
    )
    max_event_bytes: int = Field(
        1024 * 1024, ge=1024, description="a larger record is parked, not parsed"
    )
    decider_enabled: bool = Field(True, description="off: another registry decides, we project")


class PagesSettings(Group):
    """The page archive, and how the log is cut from the input topics."""

    url: str | None = Field(
        None, description="folder, s3://, gs:// or az:// of the archive; unset: in the stack folder"
    )
    buckets: int = Field(
        16, ge=1, le=1024, description="parts of the log by entity; fixed when the log begins"
    )
    settle_seconds: Seconds = Field(
        0.5, description="a cut ends this long ago, so that nothing older is still on its way"
    )
    cut_events: int = Field(
        2_000_000, ge=1, description="a larger backlog is cut at an earlier instant"
    )
    small_cut_events: int = Field(
        50_000, ge=0, description="up to this many events, a cut becomes one page"
    )
    task_bytes: int = Field(
        512 * 1024**2,
        ge=1,
        le=1024**3,
        description="a cut of which one task would hold more is cut at an earlier instant",
    )
    compact_below_bytes: int = Field(8 * 1024**2, ge=1, description="smaller pages are merged")
    compact_to_bytes: int = Field(64 * 1024**2, ge=1, description="size that merged pages aim at")
    compact_when: int = Field(100, ge=2, description="small pages that start a compaction")
    grace_seconds: Seconds = Field(
        3600, description="a replaced page stays this long for readers that began before"
    )
    first_day: date = Field(
        date(2026, 1, 1), description="where the hourly partitions begin; the log has nothing older"
    )
    retention_alert_share: float = Field(
        0.5,
        gt=0,
        le=1,
        description="share of a topic's retention; an older record that is not archived alerts",
    )

    @model_validator(mode="after")
    def _targets_exceed_thresholds(self) -> Self:
        if self.compact_to_bytes <= self.compact_below_bytes:
            raise ValueError(
                f"compact_to_bytes={self.compact_to_bytes} must exceed "
                f"compact_below_bytes={self.compact_below_bytes}; merged pages would stay small"
            )
        return self


class PipelineSettings(Group):
    """How long a run of the pipeline works, who comes after it, and how a dead one is told."""

    run_seconds: Seconds = Field(600, description="a run hands over after this time")
    run_records: int = Field(20_000_000, ge=1, description="a run hands over after so many records")
    handover_seconds: Seconds = Field(
        60, description="a run asks for its successor this long before its time is over"
    )
    warm_runs: int = Field(
        0,
        ge=0,
        le=2,
        description="runs kept warm while nothing comes: 0 none; 1 the one at work, which does not "
        "end; 2 another one beside it, which takes over within seconds if that one dies",
    )
    linger_seconds: Seconds = Field(
        45, description="a run that is caught up waits this long for more before it ends"
    )
    poll_seconds: Seconds = Field(0.5, description="pause between looks while a run lingers")
    fold_events: int = Field(
        2_000_000, ge=1, description="a batch of the fold ends with the cut that makes it so large"
    )
    clock_seconds: Seconds = Field(
        5, description="time between two looks at the deadlines while a run lasts"
    )
    lease_seconds: float = Field(
        6, ge=0.5, le=300, description="whoever does not renew its lease for so long is dead"
    )
    start_seconds: Seconds = Field(
        60, description="a launched run that has no lease by then is dead"
    )
    stall_seconds: Seconds = Field(
        10, description="a Spark that does not answer for so long ends its run"
    )
    outage_seconds: Seconds = Field(
        300, description="a run waits this long for a server to come back before it fails"
    )


class DeadlinesSettings(Group):
    """When silence becomes a fact, and when so much of it is doubted instead."""

    enabled: bool | None = Field(
        None, description="whether timeouts are declared here; unset: if the decider is on"
    )
    batch_rows: int = Field(1000, ge=1, description="overdue rows judged in one transaction")
    scan_facts: int = Field(
        10_000, ge=1, description="facts of each kind that one scan declares at most"
    )
    scan_seconds: Seconds = Field(
        2, description="time for each kind of deadline; the next scan goes on where it ended"
    )
    turn_seconds: Seconds = Field(
        15, ge=1, description="a scan that lasts longer is taken for stuck, and others pass it by"
    )
    rescan_seconds: Seconds = Field(10, description="when what was not declared is judged again")
    gap_seconds: Seconds = Field(30, description="nobody looked for so long: the watch begins anew")
    grace_seconds: float = Field(
        90, ge=0, le=86400, description="no timeout is declared this long after a watch began"
    )
    guard_share: float = Field(
        0.15, gt=0, le=1, description="share of a tenant's nodes that may expire in the window"
    )
    guard_floor: int = Field(3, ge=1, description="as many may always expire in the window")
    guard_window_seconds: Seconds = Field(600, description="the guard's window")
    drain_share: float = Field(
        0.01, gt=0, le=1, description="share of the nodes that a hold lets expire per minute"
    )
    hold_seconds: Seconds = Field(3600, description="a hold ends after this at the latest")
    flap_count: int = Field(3, ge=2, description="expiries that make a node a flapping one…")
    flap_window_seconds: Seconds = Field(86400, description="…within this time")
    late_seconds: Seconds = Field(
        60, description="an overdue row without its fact for longer fails the check"
    )


class SnapshotsSettings(Group):
    """How rows and the registry's own events reach Kafka."""

    batch_records: int = Field(
        50_000, ge=1, le=1_000_000, description="entries of the outbox published in one step"
    )
    transaction_seconds: float = Field(
        10,
        ge=1,
        le=900,
        description="a step must be acknowledged in this time; a killed publisher holds readers "
        "back as long",
    )
    cloud_events: bool = Field(
        False, description="on: published events carry CloudEvents attributes as headers"
    )


class LogSettings(Group):
    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    style: Literal["console", "json"] = "console"


class Settings(BaseSettings):
    """All settings; frozen, so that a value can't change behind somebody's back."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_file=ENV_FILE,
        env_nested_delimiter="_",
        env_nested_max_split=1,
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
    )

    environment: Environment = "dev"
    tenant: str = Field(
        "omnibase",
        pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$",
        max_length=63,
        description="tenant of events that name none",
    )
    postgres: PostgresSettings = PostgresSettings()
    kafka: KafkaSettings = KafkaSettings()
    spark: SparkSettings = SparkSettings()
    breaker: BreakerSettings = BreakerSettings()
    registration: RegistrationSettings = RegistrationSettings()
    pages: PagesSettings = PagesSettings()
    pipeline: PipelineSettings = PipelineSettings()
    deadlines: DeadlinesSettings = DeadlinesSettings()
    snapshots: SnapshotsSettings = SnapshotsSettings()
    log: LogSettings = LogSettings()
    stack: StackSettings = Field(default_factory=StackSettings)

    @model_validator(mode="after")
    def _groups_agree(self) -> Self:
        for disagreement in disagreements(self):
            raise ValueError(disagreement)
        return self


def load_settings() -> Settings:
    """This process's settings; a wrong value is named with its variable and what is allowed."""
    refuse_unknown_variables(Settings)
    try:
        return Settings()
    except ValidationError as error:
        raise ConfigurationError(
            "Wrong settings: " + "; ".join(explain(error, Settings)) + ".", hint=WHERE_LISTED
        ) from None


def address_variables(settings: Settings) -> dict[str, str]:
    """The variables that hand every known address to another process of the platform."""
    addresses = {
        "POSTGRES_URL": reveal(settings.postgres.url),
        "POSTGRES_DAGSTER_URL": reveal(settings.postgres.dagster_url),
        "KAFKA_BOOTSTRAP_SERVERS": settings.kafka.bootstrap_servers,
        "SPARK_REMOTE": settings.spark.remote,
    }
    return {PREFIX + name: value for name, value in addresses.items() if value is not None}
