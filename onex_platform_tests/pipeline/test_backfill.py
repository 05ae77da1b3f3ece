"""Hours of the log and of the history together: launched by Dagster's API, run by its daemon."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest
from dagster._core.execution.backfill import BulkActionStatus

from onex_platform import wiring
from onex_platform.base.errors import ConfigurationError
from onex_platform.base.settings import Settings, address_variables
from onex_platform.definitions import build_definitions
from onex_platform.domain.events import EnumEventKind
from onex_platform.projections.history.hourly_states import HOUR
from onex_platform.projections.reader import ProjectionReaderRegistration
from onex_platform_tests.support.archives import open_archive
from onex_platform_tests.support.backfills import Backfills, open_backfills
from onex_platform_tests.support.broker import send, sent
from onex_platform_tests.support.graph import (
    Graph,
    hour_key,
    hours_ago,
    numbers,
    partition_range,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BOTH = (wiring.EVENT_PAGES, wiring.REGISTRATION_HISTORY)


@pytest.fixture
def backfills() -> Iterator[Backfills]:
    with open_backfills() as opened:
        yield opened


@pytest.mark.servers
@pytest.mark.long
def test_hours_that_nobody_folded_are_archived_folded_and_kept_in_one_run(
    quiet_broker: Settings, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    third, second, last = (hours_ago(datetime.now(UTC), count) for count in (3, 2, 1))
    _join_at(quiet_broker, third, "a", "b")
    _join_at(quiet_broker, second, "c")
    _join_at(quiet_broker, last, "d")
    for name, value in _variables(quiet_broker).items():
        monkeypatch.setenv(name, value)
    with open_backfills() as backfills, open_archive(quiet_broker) as archive:
        assert _backfill(backfills, third, second) == {
            "log_is_whole": True,
            "pages_are_sound": True,
        }
        archived = _materialised(backfills.instance, wiring.EVENT_PAGES)
        assert {key: (hour["read"], hour["pages"]) for key, hour in archived.items()} == {
            hour_key(third): (2, 1),
            hour_key(second): (1, 1),
        }
        assert archive.cuts.head() == last  # and nothing beyond
        [folded] = _materialised(backfills.instance, wiring.REGISTRATION_PROJECTIONS).values()
        assert folded["rows"] == 3
        kept = _materialised(backfills.instance, wiring.REGISTRATION_HISTORY)
        assert {key: hour["nodes"] for key, hour in kept.items()} == {
            hour_key(third): 2,
            hour_key(second): 3,
        }
        reader = ProjectionReaderRegistration.of(archive.log)
        for hour, nodes in ((third, "ab"), (second, "abc")):
            rows = reader.iter_all_as_of(spark, hour + HOUR)
            assert sorted(row.node_name for row in rows) == [*nodes]

        _backfill(backfills, third, second)
        again = _materialised(backfills.instance, wiring.EVENT_PAGES)
        assert again[hour_key(second)]["cuts of this run"] == 0

        Graph(quiet_broker, backfills.instance).run("drain_registration")
        closed = _materialised(backfills.instance, wiring.EVENT_PAGES)
        assert closed.keys() - archived.keys() == {hour_key(last)}
        assert closed[hour_key(last)]["archived"] == 1


def test_dagster_does_not_backfill_hours_that_the_log_can_not_have(backfills: Backfills) -> None:
    early = hour_key(datetime(1999, 1, 1, tzinfo=UTC))
    refused = backfills.launch(BOTH, early, early)
    assert f"{early} is before the partitions definition start time" in refused["message"]
    late = hour_key(hours_ago(datetime.now(UTC), -1))
    ended = backfills.carry_out(backfills.launch(BOTH, late, late)["backfillId"])
    assert ended.status is BulkActionStatus.FAILED
    assert ended.error is not None
    assert "At least one run should be requested" in ended.error.message
    assert backfills.instance.get_runs_count() == 0


@pytest.mark.parametrize("key", BOTH)
def test_a_run_for_an_hour_that_is_not_over_is_refused_instead_of_waiting(
    key: dg.AssetKey,
) -> None:
    now = datetime.now(UTC)
    job = build_definitions(
        resources=dict.fromkeys(("presence", "spark", "platform", "log", "archive"), None)
    ).resolve_implicit_global_asset_job_def()
    with pytest.raises(ConfigurationError, match=r"later than now.* Choose hours that are over"):
        job.get_subset(asset_selection={key}, asset_check_selection=set()).execute_in_process(
            tags=partition_range(hours_ago(now, 1), hours_ago(now, -1))
        )


def _variables(settings: Settings) -> dict[str, str]:
    """What a code location needs to find the test's servers and pages."""
    return {
        **address_variables(settings),
        "ONEX_STACK_CACHE": str(settings.stack.cache),
        "ONEX_PAGES_URL": str(settings.pages.url),
    }


def _join_at(settings: Settings, hour: datetime, *nodes: str) -> None:
    sent_at = int(hour.timestamp() * 1000) + 1
    records = [sent(EnumEventKind.NODE_INTROSPECTION, node) for node in nodes]
    send(settings, [record._replace(timestamp_ms=sent_at) for record in records])


def _backfill(backfills: Backfills, first: datetime, last: datetime) -> dict[str, bool | None]:
    """Backfill hours of both assets; the verdicts of the checks that its one run made."""
    backfill_id = backfills.launch(BOTH, hour_key(first), hour_key(last))["backfillId"]
    ended = backfills.carry_out(backfill_id)
    [run] = backfills.instance.get_runs(dg.RunsFilter(tags={"dagster/backfill": backfill_id}))
    assert run.is_success, [r.message for r in backfills.instance.all_logs(run.run_id)]
    assert ended.status is BulkActionStatus.COMPLETED_SUCCESS
    checked = backfills.instance.all_logs(run.run_id, dg.DagsterEventType.ASSET_CHECK_EVALUATION)
    evaluations = [record.dagster_event.event_specific_data for record in checked]
    return {found.check_name: found.passed for found in evaluations}


def _materialised(
    instance: dg.DagsterInstance, key: dg.AssetKey
) -> dict[str | None, dict[str, Any]]:
    """The numbers of each partition of an asset, as last materialised."""
    found = instance.fetch_materializations(key, limit=100, ascending=True)
    return {
        record.partition_key: numbers(record.asset_materialization.metadata)
        for record in found.records
        if record.asset_materialization is not None
    }
