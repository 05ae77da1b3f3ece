"""A run is bounded in time and in records, a cut in records; and no sender's clock holds one up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from onex_platform.base.settings import PipelineSettings, Settings
from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.order import position_at
from onex_platform.ingest.archive import PageArchive
from onex_platform.ingest.verification import verify_log
from onex_platform.pipeline import drain
from onex_platform.projections.backlog import measure_backlog
from onex_platform_tests.support.archives import open_archive
from onex_platform_tests.support.broker import send, sent
from onex_platform_tests.support.folded_logs import log_of, require_live_equals_replay
from onex_platform_tests.support.waiting import let_clock_pass

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.servers

Kind = EnumEventKind


def _with(settings: Settings, cut_events: int, **pipeline: Any) -> Settings:
    return settings.model_copy(
        update={
            "pages": settings.pages.model_copy(update={"cut_events": cut_events}),
            "pipeline": PipelineSettings(poll_seconds=0.1, **pipeline),
        }
    )


def _send_bit_by_bit(settings: Settings) -> int:
    """A few records to a moment: a cut takes whole milliseconds."""
    count = 0
    for number in range(6):
        count += send(settings, [sent(Kind.NODE_INTROSPECTION, f"{number}-{n}") for n in range(5)])
        let_clock_pass(datetime.now(UTC) + timedelta(milliseconds=2))
    return count


def _cuts(archive: PageArchive) -> list[int]:
    with archive.database.transaction() as cursor:
        return [row.read for row in cursor.execute("SELECT read FROM log_cuts ORDER BY instant")]


def test_a_run_ends_with_the_cut_that_reaches_its_count_and_the_next_goes_on(
    spark: SparkSession, pipeline_settings: Settings
) -> None:
    settings = _with(pipeline_settings, cut_events=8, run_records=12)
    count = _send_bit_by_bit(settings)
    with open_archive(settings) as archive:
        account = drain(spark, archive, linger_seconds=0.1)
        assert 12 <= account.read < 12 + 8
        assert not account.caught_up
        assert account.outcomes.total() == account.archived + account.facts  # nor left unfolded
        assert measure_backlog(archive.platform).records == count - account.read
        read = account.read
        while not account.caught_up:
            account = drain(spark, archive, linger_seconds=0.1)
            read += account.read
        assert read == count
        assert max(_cuts(archive)) <= 8
        require_live_equals_replay(archive)


def test_a_run_ends_when_its_time_is_over(spark: SparkSession, pipeline_settings: Settings) -> None:
    settings = _with(pipeline_settings, cut_events=8, run_seconds=0.001)
    count = _send_bit_by_bit(settings)
    with open_archive(settings) as archive:
        account = drain(spark, archive, linger_seconds=0.1)
        assert (account.cuts, account.caught_up) == (1, False)
        assert account.read < count


def test_a_record_that_is_dated_ahead_is_read_at_once_and_dated_to_its_cut(
    spark: SparkSession, quiet_broker: Settings
) -> None:
    now = datetime.now(UTC)
    ahead = int((now + timedelta(minutes=30)).timestamp() * 1000)
    past = int((now - timedelta(seconds=1)).timestamp() * 1000)
    for stamp in (past, ahead, past, past, past):
        record = sent(Kind.NODE_INTROSPECTION, "same")._replace(timestamp_ms=stamp)
        send(quiet_broker, [record])
    with open_archive(quiet_broker) as archive:
        account = drain(spark, archive, linger_seconds=0.3)
        assert (account.read, account.caught_up) == (5, True)
        assert not measure_backlog(archive.platform)
        events = [event for event in log_of(archive) if event.kind is Kind.NODE_INTROSPECTION]
        assert len(events) == 5
        assert max(event.position for event in events) < position_at(archive.cuts.head())
        assert all(event.occurred_at < archive.cuts.head() for event in events)
        assert verify_log(archive.log).faults == []
        require_live_equals_replay(archive)
