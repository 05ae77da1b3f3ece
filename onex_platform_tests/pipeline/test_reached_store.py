"""A log's store is reached by its options in every task, whatever the environment says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from onex_platform.base.settings import Settings
from onex_platform.ingest.archive import PageArchive
from onex_platform.ingest.cuts.committed_cuts import CommittedCuts
from onex_platform.log.compaction.compact import compact
from onex_platform.log.store import PageStore, StoreOptions
from onex_platform.log.verify.page_check import verify_pages
from onex_platform.projections.fold.refold import folded_to
from onex_platform.projections.history.as_of import count_by_state, fleet_as_of
from onex_platform.projections.history.hourly_states import hour_of, write_hour
from onex_platform.projections.rebuild.proof import live_equals_replay
from onex_platform_tests.support.archives import open_archive
from onex_platform_tests.support.broker import send
from onex_platform_tests.support.events import at
from onex_platform_tests.support.live_registry import go_on, joining
from onex_platform_tests.support.pipeline_runs import a_mixed_morning, drained
from onex_platform_tests.support.rclone import running_rclone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.servers

BUCKET = "told-by-options-alone"
KEYS = {"access_key": "options", "secret_key": "known-to-options-only"}


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[PageStore]:
    """A bucket of a server that no variable names: where those point to, there is none so named."""
    folder = tmp_path / "elsewhere"
    (folder / BUCKET).mkdir(parents=True)
    with running_rclone(folder, **KEYS) as endpoint:
        credentials = {
            "aws_access_key_id": KEYS["access_key"],
            "aws_secret_access_key": KEYS["secret_key"],
            "aws_region": "us-east-1",
        }
        yield PageStore(f"s3://{BUCKET}", StoreOptions(endpoint=endpoint, credentials=credentials))


def _stored_in(store: PageStore, archive: PageArchive) -> PageArchive:
    log = replace(archive.log, address=replace(archive.log.address, store=store))
    return replace(archive, log=log, cuts=CommittedCuts(log))


def test_cuts_folds_and_merges_reach_it(
    spark: SparkSession, pipeline_settings: Settings, elsewhere: PageStore
) -> None:
    with open_archive(pipeline_settings) as opened:
        archive = _stored_in(elsewhere, opened)
        for _ in range(2):
            count = send(pipeline_settings, a_mixed_morning(9))
            assert drained(spark, archive).read == count
        assert live_equals_replay(spark, archive.log).holds
        folded = folded_to(archive.database, archive.domain)
        assert compact(spark, archive.log, folded).failures == []
        assert verify_pages(archive.log, spark=spark).faults == []
        assert live_equals_replay(spark, archive.log).holds


def test_hours_and_questions_about_them_reach_it(
    spark: SparkSession, archive: PageArchive, elsewhere: PageStore
) -> None:
    archive = _stored_in(elsewhere, archive)
    go_on(spark, archive, 7200, joining(1, 0, 0) + joining(2, 3700, 10))
    assert write_hour(spark, archive.log, hour_of(at(0))).files
    assert count_by_state(fleet_as_of(spark, archive.log, at(7000))).total() == 2
