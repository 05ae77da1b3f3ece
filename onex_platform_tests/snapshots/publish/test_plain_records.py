"""Snapshots are neither encrypted nor signed, so a contract that asks for it is refused."""

from __future__ import annotations

from typing import Any

import pytest

from onex_platform.base.errors import ConfigurationError
from onex_platform.base.settings import Settings
from onex_platform.domain.identity import REGISTRATION_DOMAIN
from onex_platform.snapshots.publish.writer import SnapshotWriter
from onex_platform.snapshots.topic_config import ModelSnapshotTopicConfig
from onex_platform.topics.catalogue import Catalogue, load_catalogue
from onex_platform.topics.contract import TopicContract


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
