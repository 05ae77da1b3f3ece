"""How the snapshot topic is set up. The contract in the catalogue gives the defaults.

`default` lets the eight SNAPSHOT_ variables override them; `development` and `production` are the
contract on one broker and on a cluster. Every way leads through the same rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, Self, get_args

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from onex_platform.base.environment import foreign_variables
from onex_platform.base.errors import ConfigurationError
from onex_platform.base.settings import Environment, Settings
from onex_platform.domain.identity import REGISTRATION_DOMAIN
from onex_platform.topics.catalogue import Catalogue
from onex_platform.topics.grammar import SnapshotName, parse, snapshot_subject

PREFIX = "SNAPSHOT_"
# What no deployment may change, though its name suggests itself.
_FIXED = {f"{PREFIX}CLEANUP_POLICY": "compact", f"{PREFIX}DELETE_RETENTION_MS": "the contract's"}
# What a deployment may change.
OVERRIDES = {
    f"{PREFIX}{field.upper()}": field
    for field in (
        "topic",
        "partition_count",
        "replication_factor",
        "min_compaction_lag_ms",
        "max_compaction_lag_ms",
        "segment_bytes",
        "retention_ms",
        "min_insync_replicas",
    )
}


class ModelSnapshotTopicConfig(BaseModel):
    """One domain's snapshot topic. What is not given is as the contract says, on a cluster, if the
    catalogue is given as the context of validation."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    domain: str = REGISTRATION_DOMAIN
    topic: str
    partition_count: int = Field(ge=1, le=1000)
    replication_factor: int = Field(ge=1, le=100)
    cleanup_policy: Literal["compact"]
    min_compaction_lag_ms: int = Field(ge=0)
    max_compaction_lag_ms: int = Field(ge=1)
    segment_bytes: int = Field(ge=1024 * 1024, le=2**31 - 1)
    retention_ms: Literal[-1]
    min_insync_replicas: int = Field(ge=1, le=100)
    delete_retention_ms: int = Field(ge=1)

    @classmethod
    def default(
        cls,
        catalogue: Catalogue,
        environment: str = "prod",
        domain: str = REGISTRATION_DOMAIN,
    ) -> Self:
        """What is in force: the contract in this environment, and the variables on top of it."""
        found = foreign_variables(PREFIX, [*OVERRIDES, *_FIXED])
        for name in found.keys() & _FIXED.keys():
            raise ConfigurationError(
                f"{name}={found[name]!r} can't be set: it is always {_FIXED[name]}.",
                hint="Unset it; docs/snapshots.md lists what may be changed.",
            )
        overrides = {OVERRIDES[name]: _number(value) for name, value in found.items()}
        try:
            fields = {"environment": environment, "domain": domain, **overrides}
            return cls.model_validate(fields, context=catalogue)
        except ValidationError as error:
            names = {field: name for name, field in OVERRIDES.items()}
            raise ConfigurationError(
                "Wrong settings: " + "; ".join(_explain(error, names)) + ".",
                hint="docs/snapshots.md lists what is allowed.",
            ) from None

    @classmethod
    def development(cls, catalogue: Catalogue) -> Self:
        """One broker: one copy of everything."""
        return cls.model_validate({"environment": "dev"}, context=catalogue)

    @classmethod
    def production(cls, catalogue: Catalogue) -> Self:
        """A cluster: the contract as it is written."""
        return cls.model_validate({"environment": "prod"}, context=catalogue)

    @classmethod
    def from_yaml(cls, path: Path, catalogue: Catalogue) -> Self:
        """The settings in a file; what it leaves out is as the contract says."""
        try:
            document = yaml.safe_load(path.read_text(encoding="utf-8"))
            return cls.model_validate({} if document is None else document, context=catalogue)
        except OSError as error:
            raise ConfigurationError(f"{path} can't be read: {error.strerror}.") from None
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            reason = " ".join(str(error).split())
            raise ConfigurationError(f"{path} is not YAML ({reason}).") from None
        except ValidationError as error:
            raise ConfigurationError(
                f"{path}: {'; '.join(_explain(error, {}))}.",
                hint="docs/snapshots.md has the rules.",
            ) from None

    def to_kafka_config(self) -> dict[str, str]:
        """The settings under Kafka's own names."""
        return {
            "cleanup.policy": self.cleanup_policy,
            "min.compaction.lag.ms": str(self.min_compaction_lag_ms),
            "max.compaction.lag.ms": str(self.max_compaction_lag_ms),
            "segment.bytes": str(self.segment_bytes),
            "retention.ms": str(self.retention_ms),
            "min.insync.replicas": str(self.min_insync_replicas),
            "delete.retention.ms": str(self.delete_retention_ms),
        }

    @model_validator(mode="before")
    @classmethod
    def _fill_from_the_contract(cls, given: Any, info: ValidationInfo) -> Any:
        if not isinstance(given, Mapping) or not isinstance(info.context, Catalogue):
            return given  # every field is to be given
        fields = dict(given)
        environment = fields.pop("environment", "prod")
        if environment not in get_args(Environment):
            raise ValueError(
                f"environment={environment!r}: expected {', '.join(get_args(Environment))}"
            )
        domain = fields.get("domain", REGISTRATION_DOMAIN)
        return _contract(info.context, domain, environment) | fields

    @field_validator("topic")
    @classmethod
    def _is_a_snapshot_topic(cls, topic: str) -> str:
        try:
            name = parse(topic)
        except ConfigurationError as error:
            raise ValueError(error.message.rstrip(".")) from None
        if not isinstance(name, SnapshotName):
            raise ValueError(f"not a snapshot's name; the form is {SnapshotName.form()}")
        return topic

    @model_validator(mode="after")
    def _rules_hold(self) -> Self:
        broken = list(self._broken_rules())
        if broken:
            raise ValueError("; ".join(broken))
        return self

    def _broken_rules(self) -> Iterator[str]:
        if self.min_insync_replicas > self.replication_factor:
            yield (
                f"min_insync_replicas={self.min_insync_replicas} is above "
                f"replication_factor={self.replication_factor}: nothing would be acknowledged"
            )
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            yield (
                f"min_compaction_lag_ms={self.min_compaction_lag_ms} is above "
                f"max_compaction_lag_ms={self.max_compaction_lag_ms}"
            )
        name, subject = parse(self.topic), snapshot_subject(self.domain)
        if isinstance(name, SnapshotName) and name.subject != subject:
            # Keys are ids alone: in one topic, the nodes of two domains would replace each other.
            yield (
                f"topic={self.topic!r} is not the domain {self.domain!r}'s: "
                f"call it onex.snapshot.{name.context}.{subject}.v{name.version}"
            )


def snapshot_topic(
    settings: Settings, catalogue: Catalogue, domain: str = REGISTRATION_DOMAIN
) -> str:
    """The name of the domain's snapshot topic in this environment."""
    return ModelSnapshotTopicConfig.default(catalogue, settings.environment, domain).topic


def _contract(catalogue: Catalogue, domain: str, environment: str) -> dict[str, Any]:
    """The contract's part of the fields."""
    contract = catalogue.snapshot(domain)
    replication, compaction = contract.replication_in(environment), contract.compaction
    assert compaction is not None  # noqa: S101 - the contract's own rules see to it
    return {
        "domain": domain,
        "topic": contract.topic,
        "partition_count": contract.partitions,
        "replication_factor": replication.factor,
        "cleanup_policy": contract.cleanup_policy,
        "min_compaction_lag_ms": compaction.min_lag // _MILLISECOND,
        "max_compaction_lag_ms": compaction.max_lag // _MILLISECOND,
        "segment_bytes": int(compaction.segment_size),
        "retention_ms": -1,
        "min_insync_replicas": replication.min_insync,
        "delete_retention_ms": compaction.tombstones_stay // _MILLISECOND,
    }


_MILLISECOND = timedelta(milliseconds=1)


def _number(text: str) -> int | str:
    """Variables are text; what is no number stays text, for the error that names it."""
    try:
        return int(text)
    except ValueError:
        return text


def _explain(error: ValidationError, names: Mapping[str, str]) -> Iterator[str]:
    """Each problem with its name, the value that was found and what is allowed."""
    for problem in error.errors(include_url=False):
        field = ".".join(map(str, problem["loc"]))
        message = problem["msg"].removeprefix("Value error, ")
        if field:
            yield f"{names.get(field, field)}={problem.get('input')!r}: {message}"
            continue
        for name, variable in names.items():  # a rule about several fields, which names them
            message = message.replace(f"{name}=", f"{variable}=")
        yield message
