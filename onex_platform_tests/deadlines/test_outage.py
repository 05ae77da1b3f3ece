"""A broker that is away for less than a gap: nobody is declared dead for what could not arrive."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from onex_platform import stack
from onex_platform.base.errors import InfraError
from onex_platform.base.settings import BreakerSettings, PagesSettings, Settings
from onex_platform.deadlines.scan import ScanAccount, scan_when_due
from onex_platform.domain.events import EnumEventKind
from onex_platform.engines.kafka.clients import open_producer
from onex_platform.ingest.archive import PageArchive
from onex_platform.pipeline import drain
from onex_platform.projections.backlog import measure_backlog
from onex_platform.stack.processes import wait_until
from onex_platform.topics.catalogue import load_catalogue
from onex_platform.topics.provision import create_topics
from onex_platform_tests.support.broker import send, sent
from onex_platform_tests.support.stacks import embedded_settings
from onex_platform_tests.support.watched_clock import open_watched, with_deadlines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.servers

Kind = EnumEventKind


def look(archive: PageArchive) -> ScanAccount | None:
    return scan_when_due(archive.platform, datetime.now(UTC))


def answers(archive: PageArchive) -> bool:
    """Whether the broker can be asked: it listens before it leads its partitions again."""
    try:
        measure_backlog(archive.platform)
    except InfraError:
        return False
    return True


def hurried(settings: Settings, kafka: Settings, folder: Path) -> Settings:
    """Seconds instead of minutes; the gap is as always, and longer than the whole outage."""
    changes = {
        "kafka": kafka.kafka.model_copy(
            update={"connect_timeout_seconds": 0.2, "request_timeout_seconds": 2}
        ),
        "breaker": BreakerSettings(failure_threshold=100),
        "pages": PagesSettings(url=str(folder), settle_seconds=0.05),
        "registration": settings.registration.model_copy(update={"first_liveness_seconds": 3}),
    }
    return with_deadlines(settings.model_copy(update=changes), gap_seconds=600, grace_seconds=5)


def test_heartbeats_that_waited_for_the_broker_count_and_the_silent_expire_all_the_same(
    spark: SparkSession, store_settings: Settings, tmp_path: Path
) -> None:
    own = embedded_settings(tmp_path / "stack")
    attached = stack.up(own, services=("kafka",))
    try:
        settings = hurried(store_settings, attached, tmp_path / "pages")
        create_topics(settings, load_catalogue())
        with open_watched(settings) as life, open_producer(settings) as node:
            archive = life.archive
            for kind in (Kind.NODE_INTROSPECTION, Kind.NODE_ACK):
                send(settings, [sent(kind, name) for name in ("alive", "dead")])
                drain(spark, archive, linger_seconds=0.2)
            assert life.states() == {"active": 2}
            life.watched_at(datetime.now(UTC))

            stack.down(own)
            beat = sent(Kind.NODE_HEARTBEAT, "alive")
            node.produce(beat.topic, beat.value, beat.key)
            overdue = "SELECT count(*) FROM registration_liveness WHERE liveness_deadline < now()"
            assert wait_until(lambda: life.select(overdue) == [(2,)], 60)
            with pytest.raises(InfraError):  # for a few seconds, a fold's own word is enough
                wait_until(lambda: look(archive) is not None, 60, interval_seconds=0.2)

            port = attached.kafka.addresses()[0][1]
            stack.up(embedded_settings(tmp_path / "stack", kafka_port=port), services=("kafka",))
            wait_until(lambda: answers(archive), 60)
            assert look(archive) is None  # nothing waits in it yet
            node.flush(60)
            drain(spark, archive, linger_seconds=0.2)
            found: list[ScanAccount | None] = []
            assert wait_until(lambda: found.append(look(archive)) or found[-1] is not None, 60)
            assert found[-1] is not None
            assert found[-1].expired == 1
            drain(spark, archive, linger_seconds=0.2)
            assert life.states() == {"active": 1, "liveness_expired": 1}
            [(node_name,)] = life.select(
                "SELECT node_name FROM registration_projections WHERE current_state = 'active'"
            )
            assert node_name == "alive"
    finally:
        stack.down(own)
