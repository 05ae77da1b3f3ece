"""The environment, decided once: every address, credential, duration and limit.

Variables are `ONEX_<GROUP>_<NAME>`, read from the process environment and from a `.env` file in
the working directory (the environment wins). An address that is not set means the embedded stack:
`onex_platform.stack.attach` fills it in. How variables are named, found and explained stands in
`onex_platform.base.environment`.
"""

from __future__ import annotations

from datetime import date
from pathlib import Path
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
    SchemasSettings,
    Seconds,
    SparkSettings,
    StackSettings,
    reveal,
)
from onex_platform.base.settings_rules import disagreements
from onex_platform.base.watch_settings import CanarySettings, HealthSettings, LogSettings

__all__ = [
    "BreakerSettings",
    "CanarySettings",
    "CaptureSettings",
    "DeadlinesSettings",
    "Environment",
    "HealthSettings",
    "KafkaSettings",
    "LogSettings",
    "PagesSettings",
    "PipelineSettings",
    "PostgresSettings",
    "RecordsSettings",
    "RegistrationSettings",
    "SchemasSettings",
    "Settings",
    "SnapshotsSettings",
    "SparkSettings",
    "StackSettings",
    "address_variables",
    "load_settings",
]

Environment = Literal["dev", "stage", "prod", "sand", "test"]
# Where only our own people read errors: elsewhere they name no hosts.
INTERNAL_ENVIRONMENTS: frozenset[Environment] = frozenset({"dev", "stage", "test"})


class RegistrationSettings(Group):
    """Durations and limits of the registration domain; changing one never rewrites history."""

    ack_seconds: Seconds = Field(30, description="time allowed for a node's acknowledgement")
    first_liveness_seconds: Seconds = Field(
        60, description="liveness window granted by registration"
    )
    heartbeat_seconds: Seconds = Field(30, description="interval between a node's heartbeats")
    heartbeat_liveness_seconds: Seconds = Field(
        90, description="liveness window granted by each heartbeat"
    )
    request_interval_seconds: Seconds = Field(
        300, description="minimum time between two introspection requests to a node"
    )
    ledger_days: int = Field(
        30,
        ge=1,
        le=3650,
        description="days an event id is remembered; must exceed every input's retention",
    )
    max_event_bytes: int = Field(
        1024 * 1024, ge=1024, description="a larger record is parked, not parsed"
    )
    decider_enabled: bool = Field(
        True, description="off: another registry decides, this one only projects"
    )


class PagesSettings(Group):
    """The page archive, and how the log is cut from the input topics."""

    url: str | None = Field(
        None,
        description="archive location: a folder, s3://, gs:// or az://; unset: the stack folder",
    )
    buckets: int = Field(
        16, ge=1, le=1024, description="number of entity buckets; fixed when the log begins"
    )
    settle_seconds: Seconds = Field(
        0.5,
        description="longest delay of a cut behind now; shorter as far as the broker's clock is "
        "known",
    )
    cut_events: int = Field(
        2_000_000, ge=1, description="maximum records per cut; a larger backlog takes several cuts"
    )
    driver_cut_events: int = Field(
        5_000,
        ge=0,
        description="maximum events of a cut or batch that the run itself handles, without Spark",
    )
    small_cut_events: int = Field(
        50_000, ge=0, description="maximum events of a cut that is written as one page"
    )
    task_bytes: int = Field(
        512 * 1024**2,
        ge=1,
        le=1024**3,
        description="maximum bytes held by one task; a larger cut ends at an earlier instant",
    )
    compact_below_bytes: int = Field(
        8 * 1024**2, ge=1, description="pages below this size are merged"
    )
    compact_to_bytes: int = Field(64 * 1024**2, ge=1, description="target size of merged pages")
    compact_when: int = Field(
        100, ge=2, description="number of small pages that starts a compaction"
    )
    grace_seconds: Seconds = Field(
        3600, description="time a replaced page stays readable before it is deleted"
    )
    first_day: date = Field(
        date(2026, 1, 1),
        description="first day of the hourly partitions; the log holds nothing older",
    )
    retention_alert_share: float = Field(
        0.5,
        gt=0,
        le=1,
        description="alert when an unarchived record is older than this share of the retention",
    )

    @property
    def events_at_hand(self) -> int:
        """How many events the run itself handles: never more than are one page."""
        return min(self.driver_cut_events, self.small_cut_events)

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

    run_seconds: Seconds = Field(600, description="maximum duration of a run before it hands over")
    run_records: int = Field(
        20_000_000, ge=1, description="maximum records of a run before it hands over"
    )
    handover_seconds: Seconds = Field(
        60, description="time before the end of a run at which its successor is started"
    )
    warm_runs: int = Field(
        0,
        ge=0,
        le=2,
        description="runs kept warm while nothing comes: 0 none; 1 the one at work, which does not "
        "end; 2 another one beside it, which takes over within seconds if that one dies",
    )
    linger_seconds: Seconds = Field(
        45, description="time a run that has caught up waits for more records"
    )
    poll_seconds: Seconds = Field(
        0.5, description="interval between polls while a run waits; a record wakes it before"
    )
    fold_events: int = Field(
        2_000_000,
        ge=1,
        description="events after which a batch of the fold ends with its current cut",
    )
    clock_seconds: Seconds = Field(5, description="interval between deadline scans during a run")
    lease_seconds: float = Field(
        6, ge=0.5, le=300, description="time without renewal after which a lease has expired"
    )
    start_seconds: Seconds = Field(
        60, description="time after which a launched run without a lease counts as dead"
    )
    stall_seconds: Seconds = Field(
        10, description="time without an answer from Spark after which its run ends"
    )
    outage_seconds: Seconds = Field(
        300, description="time a run waits for a server to come back before it fails"
    )


class DeadlinesSettings(Group):
    """When silence becomes a fact, and when so much of it is doubted instead."""

    enabled: bool | None = Field(
        None, description="declare timeouts here; unset: if the decider is on"
    )
    batch_rows: int = Field(1000, ge=1, description="overdue rows judged in one transaction")
    scan_facts: int = Field(
        10_000, ge=1, description="maximum facts of each kind declared by one scan"
    )
    scan_seconds: Seconds = Field(
        2, description="time limit per kind of deadline; the next scan continues from there"
    )
    turn_seconds: Seconds = Field(
        15, ge=1, description="time after which a running scan counts as stuck and others proceed"
    )
    rescan_seconds: Seconds = Field(
        10, description="interval after which undeclared rows are judged again"
    )
    gap_seconds: Seconds = Field(
        30, description="gap between scans after which the watch starts again"
    )
    grace_seconds: float = Field(
        90,
        ge=0,
        le=86400,
        description="time after the start of a watch in which no timeout is declared",
    )
    guard_share: float = Field(
        0.15, gt=0, le=1, description="share of a tenant's nodes that may expire in the window"
    )
    guard_floor: int = Field(
        3, ge=1, description="number of nodes that may always expire in the window"
    )
    guard_window_seconds: Seconds = Field(600, description="length of the expiry guard's window")
    drain_share: float = Field(
        0.01, gt=0, le=1, description="share of nodes that may expire per minute during a hold"
    )
    hold_seconds: Seconds = Field(3600, description="maximum duration of a hold")
    flap_count: int = Field(3, ge=2, description="number of expiries that mark a node as flapping…")
    flap_window_seconds: Seconds = Field(86400, description="…within this time")
    late_seconds: Seconds = Field(
        60, description="time after which an overdue row without its fact fails the check"
    )


class SnapshotsSettings(Group):
    """How rows and the registry's own events reach Kafka."""

    batch_records: int = Field(
        50_000, ge=1, le=1_000_000, description="outbox entries published per step"
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


class RecordsSettings(Group):
    """What the headers of published records say, and the keys that sign and encrypt."""

    region: str = Field(
        "local", pattern=r"^[a-z0-9-]+$", description="region that published records name"
    )
    scope: str = Field(
        "platform", pattern=r"^[a-z0-9.:-]+$", description="scope that published records name"
    )
    keys: Path | None = Field(
        None, description="folder of keys, as `onex keys` makes it; unset: in the stack folder"
    )
    kms_uri: str | None = Field(
        None,
        description="key that protects the others, by Tink's URI; needed outside dev and test, "
        "where a key file does",
    )


class CaptureSettings(Group):
    """The capture archive that Dagster looks after, if there is one."""

    config: Path | None = Field(
        None, description="configuration file of the snapshotter whose pages Dagster looks after"
    )


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
    schemas: SchemasSettings = SchemasSettings()
    breaker: BreakerSettings = BreakerSettings()
    registration: RegistrationSettings = RegistrationSettings()
    pages: PagesSettings = PagesSettings()
    pipeline: PipelineSettings = PipelineSettings()
    deadlines: DeadlinesSettings = DeadlinesSettings()
    snapshots: SnapshotsSettings = SnapshotsSettings()
    records: RecordsSettings = RecordsSettings()
    capture: CaptureSettings = CaptureSettings()
    health: HealthSettings = HealthSettings()
    canary: CanarySettings = CanarySettings()
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
    """The variables that hand every known address, and the login there, to another process."""
    addresses = {
        "POSTGRES_URL": reveal(settings.postgres.url),
        "POSTGRES_DAGSTER_URL": reveal(settings.postgres.dagster_url),
        "KAFKA_BOOTSTRAP_SERVERS": settings.kafka.bootstrap_servers,
        "KAFKA_SECURITY_PROTOCOL": settings.kafka.security_protocol,
        "KAFKA_SASL_MECHANISM": settings.kafka.sasl_mechanism,
        "KAFKA_SASL_USERNAME": settings.kafka.sasl_username,
        "KAFKA_SASL_PASSWORD": reveal(settings.kafka.sasl_password),
        "KAFKA_SSL_CA_LOCATION": _text(settings.kafka.ssl_ca_location),
        "KAFKA_SSL_CERTIFICATE_LOCATION": _text(settings.kafka.ssl_certificate_location),
        "KAFKA_SSL_KEY_LOCATION": _text(settings.kafka.ssl_key_location),
        "KAFKA_SSL_KEY_PASSWORD": reveal(settings.kafka.ssl_key_password),
        "SPARK_REMOTE": settings.spark.remote,
        "SCHEMAS_URL": settings.schemas.url,
        "SCHEMAS_USERNAME": settings.schemas.username,
        "SCHEMAS_PASSWORD": reveal(settings.schemas.password),
    }
    return {PREFIX + name: value for name, value in addresses.items() if value is not None}


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path.absolute())
