"""The environment, decided once: every address, credential, duration and limit.

Variables are `ONEX_<GROUP>_<NAME>`, read from the process environment and from a `.env` file in
the working directory (the environment wins). An address that is not set means the embedded stack:
`onex_platform.stack.attach` fills it in. How variables are named, found and explained stands in
`onex_platform.environment`.
"""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict

from onex_platform.environment import (
    ENV_FILE,
    PREFIX,
    WHERE_LISTED,
    explain,
    host_ports,
    path_of,
    refuse_unknown_variables,
)
from onex_platform.errors import ConfigurationError
from onex_platform.settings_rules import disagreements

Seconds = Annotated[float, Field(gt=0, le=30 * 86400)]
Port = Annotated[int, Field(ge=1, le=65535)]


Environment = Literal["dev", "stage", "prod", "sand", "test"]


class _Group(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class PostgresSettings(_Group):
    """The platform's database, and Dagster's storage beside it."""

    url: SecretStr | None = Field(None, description="platform database; unset: embedded server")
    dagster_url: SecretStr | None = Field(None, description="database of Dagster's own storage")
    pool_size: int = Field(8, ge=1, le=200, description="connections kept per process")
    application_name: str = Field(
        "onex-platform", max_length=63, description="how our sessions are named on the server"
    )
    connect_timeout_seconds: Seconds = 5
    statement_timeout_seconds: Seconds = 60
    lock_timeout_seconds: Seconds = Field(
        30, description="longest wait for a row, a table or the turn to migrate"
    )

    @field_validator("url", "dagster_url")
    @classmethod
    def _is_postgres(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None and not re.match(r"postgresql(\+\w+)?://", url.get_secret_value()):
            raise ValueError(
                "not a PostgreSQL address; expected postgresql://user:password@host:port/database"
            )
        return url


class KafkaSettings(_Group):
    """The cluster's addresses and how to authenticate there."""

    bootstrap_servers: str | None = Field(None, description="host:port,…; unset: embedded broker")
    client_id: str = "onex-platform"
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] | None = None
    sasl_username: str | None = None
    sasl_password: SecretStr | None = None
    ssl_ca_location: Path | None = Field(None, description="PEM file of the authority to trust")
    ssl_certificate_location: Path | None = None
    ssl_key_location: Path | None = None
    ssl_key_password: SecretStr | None = None
    connect_timeout_seconds: Seconds = Field(5, description="longest wait for a broker's port")
    request_timeout_seconds: Seconds = 30
    delivery_timeout_seconds: Seconds = Field(
        120, description="longest wait for the acknowledgement of a record"
    )

    @field_validator("bootstrap_servers")
    @classmethod
    def _are_addresses(cls, servers: str | None) -> str | None:
        if servers is not None:
            host_ports(servers)
        return servers

    @model_validator(mode="after")
    def _security_is_complete(self) -> Self:
        if self.security_protocol.startswith("SASL") and self.sasl_mechanism is None:
            raise ValueError(
                f"ONEX_KAFKA_SECURITY_PROTOCOL={self.security_protocol!r} "
                "needs ONEX_KAFKA_SASL_MECHANISM"
            )
        if self.sasl_mechanism not in (None, "OAUTHBEARER") and not (
            self.sasl_username and self.sasl_password
        ):
            raise ValueError(
                f"ONEX_KAFKA_SASL_MECHANISM={self.sasl_mechanism!r} "
                "needs ONEX_KAFKA_SASL_USERNAME and ONEX_KAFKA_SASL_PASSWORD"
            )
        return self

    def addresses(self) -> list[tuple[str, int]]:
        """The bootstrap servers as (host, port), in the order given; empty when none is set."""
        return host_ports(self.bootstrap_servers) if self.bootstrap_servers else []

    def client_config(self) -> dict[str, str | int]:
        """The librdkafka properties that every client of ours shares."""
        if self.bootstrap_servers is None:
            raise ConfigurationError(
                "No Kafka address is known.",
                hint="Start the embedded broker with `onex stack up`, "
                "or set ONEX_KAFKA_BOOTSTRAP_SERVERS.",
            )
        properties: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap_servers,
            "client.id": self.client_id,
            "security.protocol": self.security_protocol,
            "sasl.mechanism": self.sasl_mechanism,
            "sasl.username": self.sasl_username,
            "sasl.password": _reveal(self.sasl_password),
            "ssl.ca.location": self.ssl_ca_location,
            "ssl.certificate.location": self.ssl_certificate_location,
            "ssl.key.location": self.ssl_key_location,
            "ssl.key.password": _reveal(self.ssl_key_password),
            "socket.timeout.ms": int(self.request_timeout_seconds * 1000),
        }
        return {
            name: str(value) if isinstance(value, Path) else value
            for name, value in properties.items()
            if value is not None
        }


class SparkSettings(_Group):
    """Where the pipeline's Spark runs: Connect, a master, or in this process."""

    remote: str | None = Field(None, pattern=r"^sc://", description="a Spark Connect server")
    master: str | None = Field(None, description="a Spark master, such as spark://… or local[2]")
    driver_memory: str = Field("2g", pattern=r"^\d+[mg]$")
    shuffle_partitions: int = Field(8, ge=1, le=10_000)
    batch_records: int = Field(
        500,
        ge=1,
        description="records handed to Python at once; fewer where topics take large ones",
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if self.remote and self.master:
            raise ValueError(
                f"ONEX_SPARK_REMOTE={self.remote!r} and ONEX_SPARK_MASTER={self.master!r} "
                "exclude each other; unset one"
            )
        return self


class BreakerSettings(_Group):
    """The circuit breaker that guards every client."""

    failure_threshold: int = Field(5, ge=1, le=1000, description="failures in a row that open it")
    reset_seconds: Seconds = Field(60, description="how long it stays open before one trial call")


class RegistrationSettings(_Group):
    """Durations and limits of the registration domain; changing one never rewrites history."""

    ack_seconds: Seconds = Field(30, description="time a node has to acknowledge")
    first_liveness_seconds: Seconds = Field(60, description="life granted by registration")
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


class PagesSettings(_Group):
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


class PipelineSettings(_Group):
    """How long a run of the pipeline works, and how long it waits for more."""

    run_seconds: Seconds = Field(600, description="a run ends after this time, caught up or not")
    run_records: int = Field(
        20_000_000, ge=1, description="a run ends after this many records, caught up or not"
    )
    linger_seconds: Seconds = Field(
        20, description="a run that is caught up waits this long for more before it ends"
    )
    poll_seconds: Seconds = Field(0.5, description="pause between looks while a run lingers")
    fold_events: int = Field(
        2_000_000, ge=1, description="a batch of the fold ends with the cut that makes it so large"
    )
    clock_seconds: Seconds = Field(
        5, description="time between two looks at the deadlines while a run lasts"
    )


class DeadlinesSettings(_Group):
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


class SnapshotsSettings(_Group):
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


class LogSettings(_Group):
    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    style: Literal["console", "json"] = "console"


class StackSettings(_Group):
    """The embedded servers, used where no address is set."""

    folder: Path = Field(Path(".onex"), description="state, data and logs of the embedded servers")
    cache: Path = Field(
        Path("~/.cache/onex-platform"), description="resolved jars, shared by all stacks"
    )
    start_timeout_seconds: Seconds = Field(90, description="until a started server must answer")
    resolve_timeout_seconds: Seconds = Field(900, description="for fetching one set of jars")
    kafka_heap: str = Field("512m", pattern=r"^\d+[mg]$")
    postgres_port: Port | None = Field(None, description="unset: the last one, else any free port")
    kafka_port: Port | None = Field(None, description="unset: the last one, else any free port")
    spark_port: Port | None = Field(None, description="unset: the last one, else any free port")
    min_free_mb: int = Field(
        1024, ge=0, description="space that folder and cache must have before a server starts"
    )
    resolver: Literal["auto", "maven", "ivy"] = Field(
        "auto", description="fetches the jars; auto: mvn if it is on PATH, else pyspark's Ivy"
    )
    maven_settings: Path | None = Field(
        None, description="settings.xml for mvn; unset: the one mvn finds itself"
    )
    ivy_settings: Path | None = Field(
        None, description="ivysettings.xml for Ivy; unset: ~/.ivy2/ivysettings.xml if it exists"
    )
    java_home: Path | None = Field(
        default_factory=lambda: path_of("JAVA_HOME"),
        description="a Java 17 or newer; unset: JAVA_HOME, else java on PATH",
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
        "POSTGRES_URL": _reveal(settings.postgres.url),
        "POSTGRES_DAGSTER_URL": _reveal(settings.postgres.dagster_url),
        "KAFKA_BOOTSTRAP_SERVERS": settings.kafka.bootstrap_servers,
        "SPARK_REMOTE": settings.spark.remote,
    }
    return {PREFIX + name: value for name, value in addresses.items() if value is not None}


def _reveal(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()
