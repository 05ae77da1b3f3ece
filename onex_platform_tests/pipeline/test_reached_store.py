"""A log's store is reached by its options in every task, whatever the environment says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import uuid4

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
from onex_platform.stack.ports import free_port
from onex_platform_tests.support.archives import open_archive
from onex_platform_tests.support.broker import send
from onex_platform_tests.support.events import at
from onex_platform_tests.support.live_registry import go_on, joining
from onex_platform_tests.support.pipeline_runs import a_mixed_morning, drained
from onex_platform_tests.support.s3 import running_s3, s3_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.servers


@pytest.fixture(scope="module")
def another_s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, StoreOptions]]:
    """A server that no variable names; those name another, which has nothing of what is here."""
    port = free_port()
    known = s3_environment(port)
    credentials = {
        name.lower(): known[name]
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION")
    }
    with running_s3(port, tmp_path_factory.mktemp("another_s3")) as url:
        yield url, StoreOptions(endpoint=known["AWS_ENDPOINT_URL"], credentials=credentials)


@pytest.fixture
def elsewhere(another_s3: tuple[str, StoreOptions]) -> PageStore:
    url, options = another_s3
    return PageStore(f"{url}/{uuid4()}", options)


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
