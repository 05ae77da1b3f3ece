"""What the platform published comes back through Kafka: counted, not archived, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from onex_platform.base.settings import Settings
from onex_platform.domain.events import EnumEventKind
from onex_platform.ingest.verification import verify_log
from onex_platform.projections.checks import accounting
from onex_platform.projections.reconciliation import look
from onex_platform_tests.support.archives import open_archive
from onex_platform_tests.support.broker import send, sent
from onex_platform_tests.support.folded_logs import log_of, require_live_equals_replay, rows_of
from onex_platform_tests.support.pipeline_runs import drained, published

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.servers

Kind = EnumEventKind
NODES = [f"echoing-{number}" for number in range(5)]


@pytest.mark.parametrize("small_cut_events", [0, 50_000], ids=["page per bucket", "one page"])
def test_what_was_decided_comes_back_as_echoes_and_adds_up(
    spark: SparkSession, pipeline_settings: Settings, small_cut_events: int
) -> None:
    pages = pipeline_settings.pages.model_copy(update={"small_cut_events": small_cut_events})
    settings = pipeline_settings.model_copy(update={"pages": pages})
    send(settings, [sent(Kind.NODE_INTROSPECTION, node) for node in NODES])
    with open_archive(settings) as archive:
        drained(spark, archive)
        log, rows = log_of(archive), rows_of(archive)
        stolen = next(event for event in log if event.kind is Kind.NODE_ACCEPTED)
        assert published(archive) == 10
        # Among them one that has an id of ours, and is not what we published under it.
        thief = sent(Kind.NODE_ACCEPTED, "thief", event_id=stolen.event_id)
        broken = sent(
            Kind.NODE_ACCEPTED, NODES[0], event_id=stolen.event_id, value=b'{"event_id": 1'
        )
        send(settings, [thief, broken])
        account = drained(spark, archive)
        assert (account.read, account.archived, account.parked) == (12, 1, 1)
        assert (account.duplicates, account.echoes) == (11, 10)
        assert rows_of(archive) == rows
        assert len(log_of(archive)) == len(log) + 1
        require_live_equals_replay(archive)
        whole = verify_log(archive.log)
        assert (whole.faults, whole.echoes) == ([], 10)
        assert accounting(look(archive.log, whole=True)).passed
