"""Silence through the whole pipeline: declared, folded, published once, and never by a replay."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from onex_platform.base.settings import Settings
from onex_platform.deadlines.scan import scan
from onex_platform.domain.events import EnumEventKind
from onex_platform.pipeline import drain
from onex_platform.projections.rebuild.proof import live_equals_replay
from onex_platform.projections.rebuild.rebuild import open_rebuild
from onex_platform_tests.support.broker import send, sent
from onex_platform_tests.support.folded_logs import require_live_equals_replay
from onex_platform_tests.support.waiting import let_clock_pass
from onex_platform_tests.support.watched_clock import Watched, open_watched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.servers

Kind = EnumEventKind
TIMEOUTS = (Kind.LIVENESS_EXPIRED, Kind.ACK_TIMED_OUT)


def take_in(spark: SparkSession, watched: Watched, *records: tuple[EnumEventKind, str]) -> None:
    """Send records and drain them; a draining run of its own begins its watch with a grace."""
    watched.execute("DELETE FROM deadline_watches")
    send(watched.archive.settings, [sent(kind, node) for kind, node in records])
    drain(spark, watched.archive, linger_seconds=0.1)


def declare(spark: SparkSession, watched: Watched) -> Counter[str]:
    """A scan by somebody who has watched for long; what waits then, by kind."""
    watched.publish_requests(datetime.now(UTC) - timedelta(hours=1))
    # The windows, and the settling time, are shorter than this.
    let_clock_pass(datetime.now(UTC) + timedelta(seconds=0.5))
    drain(spark, watched.archive, linger_seconds=0.1)  # the evidence reaches beyond them as well
    watched.watched_at(datetime.now(UTC))
    scan(watched.archive.platform, datetime.now(UTC))
    return Counter(fact.kind for fact in watched.waiting())


def published(watched: Watched) -> Counter[str]:
    """The timeouts that wait for Kafka, by kind."""
    query = "SELECT event_kind FROM outbox WHERE entry = 'event'"
    return Counter(kind for (kind,) in watched.select(query) if kind in TIMEOUTS)


def test_a_silent_node_expires_once_and_again_after_a_new_life(
    spark: SparkSession, pipeline_settings: Settings
) -> None:
    registration = pipeline_settings.registration.model_copy(
        update={"ack_seconds": 0.2, "first_liveness_seconds": 0.2}
    )
    with open_watched(pipeline_settings.model_copy(update={"registration": registration})) as life:
        join, ack = Kind.NODE_INTROSPECTION, Kind.NODE_ACK
        take_in(spark, life, (join, "a"), (join, "b"), (join, "c"))
        take_in(spark, life, (ack, "a"), (ack, "b"))
        assert life.states() == {"active": 2, "awaiting_ack": 1}

        assert declare(spark, life) == {Kind.LIVENESS_EXPIRED: 2, Kind.ACK_TIMED_OUT: 1}
        assert published(life) == {}  # a fact that has no effect yet is nobody's news
        take_in(spark, life)
        assert life.states() == {"liveness_expired": 2, "ack_timed_out": 1}
        assert published(life) == {Kind.LIVENESS_EXPIRED: 2, Kind.ACK_TIMED_OUT: 1}
        require_live_equals_replay(life.archive)

        written = ("outbox", "fact_inbox", "declared_expiries", "event_ledger")
        before = life.store.physical(*written)
        with open_rebuild(spark, life.archive.log) as rebuild:
            assert rebuild.swap().changes == 0
        assert live_equals_replay(spark, life.archive.log, None).holds
        assert life.store.physical(*written) == before

        take_in(spark, life, (join, "a"))
        take_in(spark, life, (ack, "a"))
        assert life.states() == {"active": 1, "liveness_expired": 1, "ack_timed_out": 1}
        assert declare(spark, life) == {Kind.LIVENESS_EXPIRED: 1}
        take_in(spark, life)
        assert life.states() == {"liveness_expired": 2, "ack_timed_out": 1}
        assert published(life) == {Kind.LIVENESS_EXPIRED: 3, Kind.ACK_TIMED_OUT: 1}

        returned = life.select(
            "SELECT event_kind, event_id, event_key, envelope -> 'payload' -> 'deadline'"
            " FROM outbox WHERE event_kind IN ('registry.node.liveness_expired',"
            " 'registry.node.ack_timed_out')"
        )
        send(
            life.archive.settings,
            [
                sent(Kind(kind), key, event_id=event_id, deadline=deadline)
                for kind, event_id, key, deadline in returned
            ],
        )
        account = drain(spark, life.archive, linger_seconds=0.1)
        assert (account.archived, account.duplicates) == (4, 4)
        assert sum(published(life).values()) == 4
        require_live_equals_replay(life.archive)
