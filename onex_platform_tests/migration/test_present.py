"""The catalogue as of now: what is retired is neither made anew nor missed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import SecretStr

from onex_platform.base.errors import InfraConnectionError
from onex_platform.base.settings import Settings
from onex_platform.context import open_platform
from onex_platform.engines.kafka.clients import open_admin
from onex_platform.engines.kafka.topic_admin import delete
from onex_platform.governance.provision import create_topics
from onex_platform.ingest import archive as archives
from onex_platform.ingest.archive import PageArchive
from onex_platform.ingest.cuts.consistent_cut import RecordsLostError
from onex_platform.ingest.losses import find_losses
from onex_platform.ingest.offsets import CursorMove, move_consumer_cursors
from onex_platform.migration import phase_table
from onex_platform.migration.present import catalogue_now
from onex_platform.topics.catalogue import load_whole_catalogue
from onex_platform.topics.migration_intent import EnumMigrationPhase as Phase
from onex_platform_tests.support.moving_topics import MovingTopic

_NO_DATABASE = "postgresql://nobody@127.0.0.1:1/nowhere"


def _begin_deletion(moving: MovingTopic) -> None:
    """As somebody leaves it who is killed on the way."""
    with moving.database.transaction() as cursor:
        step = Phase.FREEZE, Phase.RETIRED
        phase_table.begin_change(
            cursor, moving.source, moving.target, step, by="tests", reason=None
        )


def _settings(url: str | None) -> Settings:
    settings = Settings()
    secret = None if url is None else SecretStr(url)
    postgres = settings.postgres.model_copy(update={"url": secret})
    return settings.model_copy(update={"postgres": postgres})


def test_without_a_database_no_topic_has_moved() -> None:
    whole = load_whole_catalogue()
    assert catalogue_now(_settings(None), whole) is whole


def test_a_database_that_does_not_answer_is_not_taken_for_none() -> None:
    with pytest.raises(InfraConnectionError):
        catalogue_now(_settings(_NO_DATABASE), load_whole_catalogue())


@pytest.mark.servers
def test_a_database_without_tables_knows_of_no_move(database_settings: Settings) -> None:
    whole = load_whole_catalogue()
    assert catalogue_now(database_settings, whole) is whole


@pytest.mark.servers
def test_a_topic_whose_deletion_has_begun_is_not_made_anew(version: MovingTopic) -> None:
    _begin_deletion(version)
    with open_admin(version.settings) as admin:
        delete(admin, version.source)
    now = catalogue_now(version.settings, version.catalogue)
    assert [contract.topic for contract in now] == [version.target]
    assert create_topics(version.settings, now).created == ()


class _PlannedError(Exception):
    """A cut was planned; nobody needs it taken."""


def _stop(*_arguments: Any) -> None:
    raise _PlannedError


@pytest.mark.servers
def test_an_input_that_is_retired_stops_nobody_who_is_at_work(
    version: MovingTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "ingest", _stop)  # it would need Spark
    spark: Any = None
    with open_platform(version.settings, version.catalogue) as platform:
        with platform.database.transaction() as cursor:
            read = CursorMove(version.source, 0, None, 7)
            assert move_consumer_cursors(cursor, platform.domain, [read])
        archive = PageArchive.of(platform)
        with pytest.raises(RecordsLostError, match=version.source):
            archive.take_cut(spark, datetime.now(UTC))
        assert find_losses(platform)
        _begin_deletion(version)
        with pytest.raises(_PlannedError):
            archive.take_cut(spark, datetime.now(UTC))
        assert not find_losses(platform)
