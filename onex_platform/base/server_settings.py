"""Settings of servers and of the clients that reach them; `settings.py` has the others."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)

from onex_platform.base.environment import host_ports, path_of
from onex_platform.base.errors import ConfigurationError

Seconds = Annotated[float, Field(gt=0, le=30 * 86400)]
Port = Annotated[int, Field(ge=1, le=65535)]


class Group(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class PostgresSettings(Group):
    """The platform's database, and Dagster's storage beside it."""

    url: SecretStr | None = Field(None, description="platform database; unset: embedded server")
    dagster_url: SecretStr | None = Field(None, description="database of Dagster's own storage")
    pool_size: int = Field(8, ge=1, le=200, description="connections kept per process")
    application_name: str = Field(
        "onex-platform", max_length=63, description="application name of our sessions on the server"
    )
    connect_timeout_seconds: Seconds = 5
    statement_timeout_seconds: Seconds = 60
    lock_timeout_seconds: Seconds = Field(
        30, description="longest wait for a lock on a row, a table or the migrations"
    )

    @field_validator("url", "dagster_url")
    @classmethod
    def _is_postgres(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None and not re.match(r"postgresql(\+\w+)?://", url.get_secret_value()):
            raise ValueError(
                "not a PostgreSQL address; expected postgresql://user:password@host:port/database"
            )
        return url


class KafkaSettings(Group):
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
            "sasl.password": reveal(self.sasl_password),
            "ssl.ca.location": self.ssl_ca_location,
            "ssl.certificate.location": self.ssl_certificate_location,
            "ssl.key.location": self.ssl_key_location,
            "ssl.key.password": reveal(self.ssl_key_password),
            "socket.timeout.ms": int(self.request_timeout_seconds * 1000),
        }
        return {
            name: str(value) if isinstance(value, Path) else value
            for name, value in properties.items()
            if value is not None
        }


class SchemasSettings(Group):
    """The schema registry; none is needed to run the platform."""

    url: str | None = Field(
        None,
        pattern=r"^https?://",
        description="a Confluent-compatible registry; unset: embedded, if started",
    )
    username: str | None = None
    password: SecretStr | None = None
    timeout_seconds: Seconds = 10


class SparkSettings(Group):
    """Where the pipeline's Spark runs: Connect, a master, or in this process."""

    remote: str | None = Field(None, pattern=r"^sc://", description="a Spark Connect server")
    master: str | None = Field(None, description="a Spark master, such as spark://… or local[2]")
    driver_memory: str = Field("2g", pattern=r"^\d+[mg]$")
    shuffle_partitions: int = Field(8, ge=1, le=10_000)
    batch_records: int = Field(
        500,
        ge=1,
        description="records handed to Python at once; lower it where records are large",
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if self.remote and self.master:
            raise ValueError(
                f"ONEX_SPARK_REMOTE={self.remote!r} and ONEX_SPARK_MASTER={self.master!r} "
                "exclude each other; unset one"
            )
        return self


class BreakerSettings(Group):
    """The circuit breaker that guards every client."""

    failure_threshold: int = Field(
        5, ge=1, le=1000, description="consecutive failures that open the breaker"
    )
    reset_seconds: Seconds = Field(
        60, description="time the breaker stays open before one trial call"
    )


class StackSettings(Group):
    """The embedded servers, used where no address is set."""

    folder: Path = Field(Path(".onex"), description="state, data and logs of the embedded servers")
    cache: Path = Field(
        Path("~/.cache/onex-platform"), description="resolved jars, shared by all stacks"
    )
    start_timeout_seconds: Seconds = Field(90, description="time a started server has to answer")
    resolve_timeout_seconds: Seconds = Field(
        900, description="time limit for fetching one set of jars"
    )
    kafka_security: Literal["none", "sasl", "sasl_tls"] = Field(
        "none",
        description="sasl: accounts with passwords and rights, sasl_tls: and encrypted; fixed when "
        "data is formatted",
    )
    kafka_heap: str = Field("512m", pattern=r"^\d+[mg]$")
    postgres_port: Port | None = Field(None, description="unset: the last one, else any free port")
    kafka_port: Port | None = Field(None, description="unset: the last one, else any free port")
    spark_port: Port | None = Field(None, description="unset: the last one, else any free port")
    schemas_port: Port | None = Field(None, description="unset: the last one, else any free port")
    min_free_mb: int = Field(
        1024, ge=0, description="free space required in folder and cache before a server starts"
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


def reveal(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()
