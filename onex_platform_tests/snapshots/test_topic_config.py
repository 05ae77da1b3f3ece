"""The snapshot topic's configuration: the contract's values, overrides, and the rules for both."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from onex_platform.base.errors import ConfigurationError
from onex_platform.snapshots.topic_config import OVERRIDES, ModelSnapshotTopicConfig
from onex_platform.topics.catalogue import load_catalogue

CONTRACT = load_catalogue().snapshot("registration")
Config = ModelSnapshotTopicConfig


@pytest.fixture(autouse=True)
def no_overrides(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable in OVERRIDES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)  # where no .env is


def test_the_defaults_are_those_of_the_specification() -> None:
    assert Config.default(load_catalogue()).model_dump() == {
        "domain": "registration",
        "topic": "onex.snapshot.platform.registration-snapshots.v1",
        "partition_count": 12,
        "replication_factor": 3,
        "cleanup_policy": "compact",
        "min_compaction_lag_ms": 60_000,
        "max_compaction_lag_ms": 300_000,
        "segment_bytes": 104_857_600,
        "retention_ms": -1,
        "min_insync_replicas": 2,
        "delete_retention_ms": 86_400_000,
    }


@pytest.mark.parametrize(
    ("config", "environment"),
    [(Config.production(load_catalogue()), "prod"), (Config.development(load_catalogue()), "dev")],
)
def test_profiles_say_what_the_contract_says(config: Config, environment: str) -> None:
    agreed = CONTRACT.kafka_config(environment)
    assert config.to_kafka_config().items() <= agreed.items()
    # Whose time stamps a record carries, and how long it is, are no matters of compaction.
    assert agreed.keys() - config.to_kafka_config() == {
        "message.timestamp.type",
        "max.message.bytes",
    }
    assert config.replication_factor == CONTRACT.replication_in(environment).factor
    assert (config.topic, config.partition_count) == (CONTRACT.topic, CONTRACT.partitions)


def test_the_development_profile_fits_one_broker() -> None:
    config = Config.development(load_catalogue())
    assert (config.replication_factor, config.min_insync_replicas) == (1, 1)
    assert config.to_kafka_config()["min.insync.replicas"] == "1"


def test_each_of_the_eight_variables_overrides_its_field(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {
        "SNAPSHOT_TOPIC": "onex.snapshot.stage.registration-snapshots.v2",
        "SNAPSHOT_PARTITION_COUNT": "24",
        "SNAPSHOT_REPLICATION_FACTOR": "5",
        "SNAPSHOT_MIN_COMPACTION_LAG_MS": "120000",
        "SNAPSHOT_MAX_COMPACTION_LAG_MS": "600000",
        "SNAPSHOT_SEGMENT_BYTES": "52428800",
        "SNAPSHOT_RETENTION_MS": "-1",
        "SNAPSHOT_MIN_INSYNC_REPLICAS": "3",
    }
    assert set(values) == set(OVERRIDES)
    for variable, value in values.items():
        monkeypatch.setenv(variable, value)
    config = Config.default(load_catalogue())
    for variable, value in values.items():
        assert str(getattr(config, OVERRIDES[variable])) == value


def test_variables_also_come_from_the_env_file(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("SNAPSHOT_PARTITION_COUNT=7\n")
    assert Config.default(load_catalogue()).partition_count == 7


@pytest.mark.parametrize(
    ("variable", "value", "allowed"),
    [
        ("SNAPSHOT_PARTITION_COUNT", "many", "valid integer"),
        ("SNAPSHOT_PARTITION_COUNT", "0", "greater than or equal to 1"),
        ("SNAPSHOT_RETENTION_MS", "604800000", "-1"),
        ("SNAPSHOT_SEGMENT_BYTES", "2147483648", "less than or equal to 2147483647"),
        ("SNAPSHOT_CLEANUP_POLICY", "delete", "it is always compact"),
        ("SNAPSHOT_DELETE_RETENTION_MS", "1000", "it is always the contract's"),
        (
            "SNAPSHOT_TOPIC",
            "onex.snapshot.stage.discovery-snapshots.v2",
            "call it onex.snapshot.stage.registration-snapshots.v2",
        ),
        ("SNAPSHOT_MIN_INSYNC_REPLICAS", "4", "is above SNAPSHOT_REPLICATION_FACTOR=3"),
        ("SNAPSHOT_MIN_COMPACTION_LAG_MS", "300001", "is above SNAPSHOT_MAX_COMPACTION_LAG_MS"),
        ("SNAPSHOT_TOPIC", "prod.registration.snapshots.v1", "parts"),
        ("SNAPSHOT_TOPIC", "onex.node.heartbeat.published.v1", "not a snapshot's name"),
        ("SNAPSHOT_TOPIC", "onex.snapshot.platform.no spaces.v1", "characters that Kafka forbids"),
        ("SNAPSHOT_TOPIC", f"onex.snapshot.platform.{'x' * 250}.v1", "Kafka allows 249"),
    ],
)
def test_a_bad_override_is_named_with_its_value_and_what_is_allowed(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, allowed: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigurationError) as refused:
        Config.default(load_catalogue())
    assert f"{variable}=" in refused.value.message
    assert value[:40] in refused.value.message
    assert allowed in refused.value.message


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("SNAPSHOT_PARTITION_COUT", "SNAPSHOT_PARTITION_COUNT"),
        ("SNAPSHOT_PARTITIONS", "SNAPSHOT_PARTITION_COUNT"),
        ("SNAPSHOT_TOPIC_NAME", "SNAPSHOT_TOPIC"),
        ("SNAPSHOT_MIN_INSYNC_REPLICA", "SNAPSHOT_MIN_INSYNC_REPLICAS"),
    ],
)
def test_a_misspelled_variable_is_refused_with_the_nearest_one(
    monkeypatch: pytest.MonkeyPatch, variable: str, meant: str
) -> None:
    monkeypatch.setenv(variable, "3")
    with pytest.raises(ConfigurationError, match=f"{variable} is not a setting") as refused:
        Config.default(load_catalogue())
    assert f"Did you mean {meant}?" in (refused.value.hint or "")


def test_variables_of_others_with_the_same_prefix_are_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for ending in ("BUCKET", "INTERVAL", "DIR", "ID", "S3_URL"):
        monkeypatch.setenv(f"SNAPSHOT_{ending}", "theirs")
    assert Config.default(load_catalogue()) == Config.production(load_catalogue())


def test_an_unknown_environment_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="environment='devel': expected dev, stage"):
        Config.default(load_catalogue(), "devel")
    file = tmp_path / "topic.yaml"
    file.write_text("environment: production\n")
    with pytest.raises(ConfigurationError, match="environment='production': expected dev, stage"):
        Config.from_yaml(file, load_catalogue())


def test_a_file_overrides_what_it_names(tmp_path: Path) -> None:
    file = tmp_path / "topic.yaml"
    file.write_text("partition_count: 24\nmax_compaction_lag_ms: 600000\n")
    assert Config.from_yaml(file, load_catalogue()) == Config.production(
        load_catalogue()
    ).model_copy(update={"partition_count": 24, "max_compaction_lag_ms": 600_000})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("partitions: 3", "partitions=3"),
        ("cleanup_policy: delete", "cleanup_policy='delete'"),
        ("delete_retention_ms: 0", "delete_retention_ms=0"),
        ("- 1", "valid dictionary"),
        ("a: [", "is not YAML"),
    ],
)
def test_a_bad_file_is_named_with_what_is_wrong(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "topic.yaml"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=r"topic\.yaml") as refused:
        Config.from_yaml(file, load_catalogue())
    assert said in refused.value.message


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"missing\.yaml can't be read"):
        Config.from_yaml(tmp_path / "missing.yaml", load_catalogue())


def test_a_configuration_can_not_change_behind_somebodys_back() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Config.production(load_catalogue()).partition_count = 3  # type: ignore[misc]


def test_a_domain_without_a_topic_in_the_catalogue_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'discovery'"):
        Config.default(load_catalogue(), domain="discovery")
