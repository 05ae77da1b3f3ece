"""The environment, decided once: every address, credential, duration and limit.

Variables are `ONEX_<GROUP>_<NAME>`, read from the process environment and from a `.env` file in
the working directory (the environment wins). An address that is not set means the embedded stack:
`onex_platform.stack.attach` fills it in. Nothing else in the package reads `os.environ`.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from onex_platform.errors import ConfigurationError
from onex_platform.telemetry import REDACTED, redact

PREFIX = "ONEX_"
ENV_FILE = Path(".env")

Seconds = Annotated[float, Field(gt=0, le=30 * 86400)]


class _Group(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class PostgresSettings(_Group):
    """The platform's database, and Dagster's storage beside it."""

    url: SecretStr | None = Field(None, description="platform database; unset: embedded server")
    dagster_url: SecretStr | None = Field(None, description="database of Dagster's own storage")
    pool_size: int = Field(8, ge=1, le=200, description="connections kept per process")
    connect_timeout_seconds: Seconds = 5
    statement_timeout_seconds: Seconds = 60

    @model_validator(mode="after")
    def _urls_are_postgres(self) -> Self:
        for name in ("url", "dagster_url"):
            secret: SecretStr | None = getattr(self, name)
            if secret is not None and not secret.get_secret_value().startswith("postgresql"):
                raise ValueError(
                    f"{name}={redact(secret.get_secret_value())!r} is not a PostgreSQL address; "
                    "expected postgresql://user:password@host:port/database"
                )
        return self


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
    request_timeout_seconds: Seconds = 30

    @model_validator(mode="after")
    def _security_is_complete(self) -> Self:
        if self.security_protocol.startswith("SASL") and self.sasl_mechanism is None:
            raise ValueError(
                f"security_protocol={self.security_protocol!r} needs sasl_mechanism to be set"
            )
        if self.sasl_mechanism not in (None, "OAUTHBEARER") and not (
            self.sasl_username and self.sasl_password
        ):
            raise ValueError(
                f"sasl_mechanism={self.sasl_mechanism!r} needs sasl_username and sasl_password"
            )
        return self

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

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if self.remote and self.master:
            raise ValueError(
                f"remote={self.remote!r} and master={self.master!r} exclude each other; unset one"
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


class LogSettings(_Group):
    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    style: Literal["console", "json"] = "console"


class StackSettings(_Group):
    """The embedded servers, used where no address is set."""

    folder: Path = Field(Path(".onex"), description="state, data and logs of the embedded servers")
    cache: Path = Field(
        Path("~/.cache/onex-platform"), description="resolved jars, shared by all stacks"
    )
    start_timeout_seconds: Seconds = 90
    kafka_heap: str = Field("512m", pattern=r"^\d+[mg]$")


class Settings(BaseSettings):
    """All settings; frozen, so that a value can't change behind somebody's back."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_file=ENV_FILE,
        env_nested_delimiter="_",
        env_nested_max_split=1,
        extra="ignore",
        frozen=True,
    )

    environment: Literal["dev", "stage", "prod", "sand", "test"] = "dev"
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
    log: LogSettings = LogSettings()
    stack: StackSettings = StackSettings()


@dataclass(frozen=True)
class EffectiveValue:
    """One row of `onex settings`: what is in force, and who said so."""

    variable: str
    value: str
    source: str
    description: str


def load_settings() -> Settings:
    """This process's settings; a wrong value is named with its variable and what is allowed."""
    _refuse_unknown_variables()
    try:
        return Settings()
    except ValidationError as error:
        raise ConfigurationError(
            "Wrong settings: " + "; ".join(_explain(error)) + ".",
            hint="`onex settings --help` lists every variable.",
        ) from None


def effective_values(settings: Settings) -> list[EffectiveValue]:
    """Every setting with its value, secrets hidden, and the place it came from."""
    in_file = _dotenv_names()
    rows = []
    for variable, value, description in _leaves(settings):
        if variable in _names(os.environ):
            source = "environment"
        elif variable in in_file:
            source = str(ENV_FILE)
        else:
            source = "default"
        rows.append(EffectiveValue(variable, _show(value), source, description))
    return rows


def _leaves(settings: BaseModel, prefix: str = PREFIX) -> Iterator[tuple[str, Any, str]]:
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        if isinstance(value, BaseModel):
            yield from _leaves(value, f"{prefix}{name.upper()}_")
        else:
            yield f"{prefix}{name.upper()}", value, field.description or ""


def _show(value: Any) -> str:
    if value is None:
        return ""
    return REDACTED if isinstance(value, SecretStr) else redact(str(value))


def _reveal(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()


def _names(variables: Mapping[str, Any]) -> set[str]:
    return {name.upper() for name in variables if name.upper().startswith(PREFIX)}


def _dotenv_names() -> set[str]:
    from dotenv import dotenv_values

    return _names(dotenv_values(ENV_FILE))


def _refuse_unknown_variables() -> None:
    """A misspelled variable would silently leave its default in force; it is an error instead."""
    known = [variable for variable, _, _ in _leaves(Settings.model_construct())]
    for unknown in sorted((_names(os.environ) | _dotenv_names()) - set(known)):
        near = difflib.get_close_matches(unknown, known, n=1)
        raise ConfigurationError(
            f"{unknown} is not a setting.",
            hint=f"Did you mean {near[0]}?" if near else "`onex settings` lists every variable.",
        )


def _explain(error: ValidationError) -> Iterator[str]:
    for problem in error.errors(include_url=False):
        path = [str(part) for part in problem["loc"]]
        variable = PREFIX + "_".join(path).upper()
        message = problem["msg"].removeprefix("Value error, ")
        value = problem.get("input")
        shown = "" if isinstance(value, BaseModel | dict) else f"={redact(str(value))!r}"
        if any(word in variable for word in ("PASSWORD", "SECRET")):
            shown = f"={REDACTED!r}"
        yield f"{variable}{shown}: {message}"
