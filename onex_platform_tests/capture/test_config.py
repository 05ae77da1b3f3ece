"""The configuration file: 001's examples are taken, every fault is refused by the key's name."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import SecretStr

from onex_platform.base.errors import ConfigurationError
from onex_platform.capture.captured_events import Durability
from onex_platform.capture.config import load_config, parse_config

_EXAMPLES = Path(__file__).parents[2] / "docker" / "snapshotter"
_MINIO = {"MINIO_ACCESS_KEY": "key", "MINIO_SECRET_KEY": "secret"}
_SMALLEST: dict[str, Any] = {
    "plugin": "snapshotter",
    "storage": {"backend": "filesystem", "config": {"base_path": "pages"}},
}
# The file with which 001 introduces its keys, the secondary index included.
_INTRODUCTION: dict[str, Any] = {
    "plugin": "snapshotter",
    "version": "v1.0.0",
    "buffer": {
        "max_events": 1000,
        "max_size_bytes": 10485760,
        "max_age_seconds": 300,
        "flush_on_disconnect": True,
    },
    "page": {
        "format": "protobuf",
        "compression": "gzip",
        "target_size_mb": 10,
        "include_metadata": True,
    },
    "storage": {
        "backend": "minio",
        "interface": "storage_object",
        "config": {
            "endpoint": "minio:9000",
            "bucket": "event-snapshots",
            "access_key": "${MINIO_ACCESS_KEY}",
            "secret_key": "${MINIO_SECRET_KEY}",
            "key_template": "snapshots/{writer_id}/{timestamp}_{sequence}.pb.gz",
        },
    },
    "index": {
        "backend": "redis",
        "interface": "keyvalue_basic",
        "config": {
            "connection": "redis://localhost:6379/0",
            "key_prefix": "snapshot:",
            "ttl_days": 90,
            "secondary": [
                {
                    "backend": "elasticsearch",
                    "interface": "document_query",
                    "index": "event-snapshots",
                }
            ],
        },
    },
}


def _stated(values: dict[str, Any], config: Any, place: str = "") -> None:
    """Require that every key of a file is a part of the configuration, with its value."""
    for name, value in values.items():
        key = name.removesuffix("_env")
        found = getattr(config, key)
        if isinstance(value, dict):
            _stated(value, found, f"{place}{name}.")
            continue
        if isinstance(found, SecretStr):
            found = found.get_secret_value()
        assert found == (_MINIO[value] if name.endswith("_env") else value), f"{place}{name}"


@pytest.mark.parametrize(
    ("name", "backends"),
    [
        ("development", ("filesystem", "memstore")),
        ("production", ("minio", "redis")),
        ("large_scale", ("s3", "clickhouse")),
    ],
)
def test_every_key_of_001s_examples_is_taken(name: str, backends: tuple[str, str]) -> None:
    path = _EXAMPLES / f"{name}.yaml"
    config = load_config(path, _MINIO)
    _stated(yaml.safe_load(path.read_text()), config)
    assert (config.storage.backend, config.index.backend) == backends


def test_secrets_come_from_the_environment_and_are_not_shown() -> None:
    config = parse_config(_INTRODUCTION, _MINIO)
    assert config.storage.config.secret_key is not None
    assert config.storage.config.secret_key.get_secret_value() == "secret"
    assert "secret'" not in repr(config)
    with pytest.raises(ConfigurationError, match="MINIO_ACCESS_KEY, which is not set"):
        parse_config(_INTRODUCTION, {})


def test_001s_word_for_the_cheaper_log_is_taken_and_answers_buffered() -> None:
    config = parse_config({**_SMALLEST, "wal": "checkpoint"})
    assert config.log_limits().sync_seconds == 60
    assert config.default_durability is Durability.BUFFERED


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        ("bufer", {}, "bufer: this key is not known"),
        ("buffer.max_evnts", 5, "buffer.max_evnts: this key is not known"),
        ("buffer.max_events", 0, "buffer.max_events"),
        ("page.format", "xml", "page.format"),
        ("page.target_size_mb", 11, "page.target_size_mb .* is above buffer.max_size_bytes"),
        ("buffer.max_size_bytes", 2**40, "above limits.memory_bytes"),
        ("limits.max_event_bytes", 2**28, "above wal.segment_bytes"),
        ("wal.max_bytes", 2**20, "two segments"),
        ("retry.first_seconds", 900, "retry.first_seconds"),
        ("storage.config.region", "eu", "storage.config.region means nothing to filesystem"),
        ("storage.config.base_path", None, "storage.config.base_path is needed by filesystem"),
        ("index.interface", "document_query", "postgres has the interface timeseries_basic"),
        ("index.config.table", "pages", "index.config.table means nothing to postgres"),
        ("index.key_pattern", "{writer_id}", "index.key_pattern: this key is not known"),
        ("index.config.ttl_days", 90, "retention.days .365. is above index.config.ttl_days .90."),
        ("retention.days", 0, "retention.days"),
        ("listen.tls_key", __file__, "go together"),
        ("listen.tls_key", "nowhere.pem", "listen.tls_key: Path does not point to a file"),
        ("listen.tls_client_ca", __file__, "asks for listen.tls_certificate"),
        ("tokens", [{"token": "", "tenant": "a"}], "tokens.0.token"),
        ("tokens", [{"token": "x", "tenant": "../a"}], "tokens.0.tenant"),
        ("tokens", [{"token": "x", "tenant": "a"}] * 2, "same token stands there twice"),
        ("schema_registry", {"url": "registry:8081"}, "schema_registry.url"),
        ("schema_registry", {"url": "http://r", "username": "u"}, "password go together"),
        ("schema_registry", {"url": "http://r", "mode": "NONE"}, "schema_registry.mode: this key"),
        ("version", "v2.0", "version"),
        ("durability", "FOREVER", "durability"),
    ],
)
def test_a_fault_is_one_sentence_that_names_the_key(place: str, value: Any, words: str) -> None:
    values = copy.deepcopy(_SMALLEST)
    *sections, last = place.split(".")
    inner = values
    for section in sections:
        inner = inner.setdefault(section, {})
    inner[last] = value
    if last == "ttl_days":
        values["retention"] = {"days": 365}
    with pytest.raises(ConfigurationError, match=words):
        parse_config(values, {})


def test_a_key_that_stands_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "twice.yaml"
    path.write_text("plugin: snapshotter\nplugin: snapshotter\n")
    with pytest.raises(ConfigurationError, match="'plugin' stands twice"):
        load_config(path)
