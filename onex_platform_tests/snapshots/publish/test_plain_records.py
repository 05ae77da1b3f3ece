"""Snapshots are neither encrypted nor signed, so a contract that asks for it is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onex_platform.base.errors import ConfigurationError
from onex_platform.base.settings import Settings
from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.identity import REGISTRATION_DOMAIN
from onex_platform.records.key_folder import MASTER
from onex_platform.snapshots.publish.relay import OutboxRelay
from onex_platform.snapshots.publish.writer import SnapshotWriter
from onex_platform.snapshots.topic_config import ModelSnapshotTopicConfig
from onex_platform.topics.catalogue import Catalogue, load_catalogue
from onex_platform.topics.contract import TopicContract
from onex_platform_tests.support.key_folders import filled, with_keys


def written(contract: TopicContract) -> SnapshotWriter:
    catalogue = Catalogue([contract])
    config = ModelSnapshotTopicConfig.default(catalogue, "test", REGISTRATION_DOMAIN)
    database: Any = None  # nothing is opened before it is used
    return SnapshotWriter(Settings(), database, catalogue, config)


def test_a_snapshot_contract_that_asks_for_more_than_it_gets_is_refused() -> None:
    plain = load_catalogue().snapshot(REGISTRATION_DOMAIN)
    written(plain.with_private_fields({"email": "low"})).close()
    with pytest.raises(ConfigurationError, match=rf"{plain.topic} asks for encryption"):
        written(plain.with_private_fields({"email": "high"}))
    with pytest.raises(ConfigurationError, match=rf"{plain.topic} asks for signatures"):
        written(plain.model_copy(update={"signed": True}))


@pytest.mark.parametrize("asks", [{"signed": True}, {"private": {"payload.reason": "high"}}])
def test_a_publisher_whose_key_file_is_missing_or_open_is_refused_at_start(
    tmp_path: Path, asks: dict[str, Any]
) -> None:
    settings, plain = with_keys(tmp_path), load_catalogue()
    topic = plain.for_kind(EnumEventKind.NODE_ACCEPTED)
    asking = topic.model_copy(update=asks).with_private_fields(asks.get("private", {}))
    catalogue = Catalogue(asking if c.topic == topic.topic else c for c in plain)
    database: Any = None  # nothing is opened before it is used

    def begin(chosen: Catalogue) -> None:
        config = ModelSnapshotTopicConfig.default(chosen, "test", REGISTRATION_DOMAIN)
        OutboxRelay(settings, database, chosen, config).writer.close()

    begin(plain)  # who needs no key is not asked for one
    with pytest.raises(ConfigurationError, match=rf"{tmp_path}/keys/{MASTER} is missing"):
        begin(catalogue)
    filled(settings)
    begin(catalogue)
    (tmp_path / "keys" / MASTER).chmod(0o644)
    with pytest.raises(ConfigurationError, match=rf"{MASTER} has mode 0644"):
        begin(catalogue)
