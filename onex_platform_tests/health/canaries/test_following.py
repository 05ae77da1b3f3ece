"""Canaries beside real nodes, and what is told of a pipeline and of a group that stand still."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from onex_platform.base.settings import Settings
from onex_platform.context import PlatformContext, open_platform
from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.headers import is_sample
from onex_platform.domain.identity import CANARY_ID
from onex_platform.domain.states import EnumRegistrationState
from onex_platform.engines.kafka.clients import Positions, end_positions, read_to_end
from onex_platform.engines.kafka.group_offsets import commit_for, end_offsets
from onex_platform.governance.provision import create_topics
from onex_platform.health.canaries.following import follow, look
from onex_platform.health.canaries.group_watch import forget_group
from onex_platform.health.canaries.life_steps import MEASURES
from onex_platform.pipeline import serve
from onex_platform.projections.reader import ProjectionReaderRegistration
from onex_platform.snapshots.read.cache import SnapshotCache
from onex_platform.topics.catalogue import load_catalogue, load_whole_catalogue
from onex_platform_tests.support.archives import open_archive
from onex_platform_tests.support.broker import send, sent
from onex_platform_tests.support.folded_logs import require_live_equals_replay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.servers

Kind = EnumEventKind
PERIOD = timedelta(seconds=60)
BREAKERS = load_catalogue().for_kind(Kind.BREAKER_STATE_CHANGED).topic
ERRORS = load_catalogue().for_kind(Kind.ERROR_DETECTED).topic


def watched(settings: Settings) -> Settings:
    seconds = PERIOD.total_seconds()
    canary = settings.canary.model_copy(update={"enabled": True, "period_seconds": seconds})
    return settings.model_copy(update={"canary": canary})


@pytest.fixture
def platform(pipeline_settings: Settings) -> Iterator[PlatformContext]:
    create_topics(pipeline_settings, load_catalogue())
    with open_platform(watched(pipeline_settings), load_catalogue()) as opened:
        yield opened


def told_since(
    platform: PlatformContext, before: Positions, groups: Collection[str]
) -> list[dict[str, Any]]:
    """What the canaries have told of the node and these groups, in order: other tests leave groups
    and readers behind, which are missed as well."""
    events = [
        json.loads(message.value() or b"")
        for message in read_to_end(platform.settings, [ERRORS], before)
        if not is_sample(message.headers())
    ]
    kinds = ("node ", *(f"group {group} " for group in groups))
    ours = [
        one
        for one in events
        if one["payload"].get("operation") == "follow_canaries"
        and one["payload"]["context"]["trouble"].startswith(kinds)
    ]
    ours.sort(key=lambda one: (one["timestamp"], one["payload"]["context"]["trouble"]))
    return [one["payload"] for one in ours]


def test_the_canary_goes_through_the_whole_pipeline_and_nobody_sees_it(
    spark: SparkSession, pipeline_settings: Settings
) -> None:
    settings = watched(pipeline_settings)
    nodes = [str(uuid4()) for _ in range(2)]
    send(settings, [sent(Kind.NODE_INTROSPECTION, node) for node in nodes])
    catalogue = load_whole_catalogue()
    with open_archive(settings) as archive:
        began = datetime.now(UTC)
        for _ in range(5):
            report = follow(archive.platform, catalogue, began)
            if report.life is not None and report.life.ended_at is not None:
                break
            serve(spark, archive, linger_seconds=0.2)
        assert report.life is not None
        assert report.life.stopped_at is None
        assert set(report.life.seconds()) == set(MEASURES)
        assert report.troubles == ()
        reader = ProjectionReaderRegistration(archive.database)
        stored = reader.get_entity_state(CANARY_ID, include_deregistered=True)
        assert stored is not None
        assert stored.is_closed()
        counts = reader.count_by_state()
        assert counts[EnumRegistrationState.AWAITING_ACK] == sum(counts.values()) == len(nodes)
        rows = [str(row.entity_id) for row in reader.iter_all(include_deregistered=True)]
        assert sorted(rows) == sorted(nodes)
        snapshots = load_catalogue().snapshot(archive.domain).topic
        with SnapshotCache.open(settings, snapshots) as cache:
            assert CANARY_ID not in cache
        require_live_equals_replay(archive)


def test_a_stopped_pipeline_and_a_broken_group_are_told_once_and_once_when_they_are_over(
    platform: PlatformContext,
) -> None:
    admin, catalogue = platform.kafka.admin(), load_whole_catalogue()
    broken, fine = f"observability-{uuid4()}", f"observability-{uuid4()}"
    stranger = f"stranger-{uuid4()}"
    for group in (broken, fine, stranger):
        commit_for(admin, group, end_offsets(admin, BREAKERS))
    before = end_positions(platform.settings, [ERRORS])
    began = datetime.now(UTC)
    assert (BREAKERS, stranger) in follow(platform, catalogue, began).unnamed
    for seconds in (20, 40, 59):
        commit_for(admin, fine, end_offsets(admin, BREAKERS))
        follow(platform, catalogue, began + timedelta(seconds=seconds))
    assert told_since(platform, before, (broken, fine)) == []
    commit_for(admin, fine, end_offsets(admin, BREAKERS))
    for seconds in (60, 61):
        report = follow(platform, catalogue, began + timedelta(seconds=seconds))
    assert not report.is_well
    [group, node] = told_since(platform, before, (broken, fine))
    assert node["context"]["step"] == "ack_requested"
    assert "is the pipeline at work" in node["message"]
    assert group["context"] | {"lag": 0} == {
        "trouble": f"group {broken} in {BREAKERS}",
        "topic": BREAKERS,
        "group": broken,
        "seconds": 60,
        "lag": 0,
        "members": 0,
    }
    assert group["context"]["lag"] > 0
    commit_for(admin, broken, end_offsets(admin, BREAKERS))
    for seconds in (62, 63):
        follow(platform, catalogue, began + timedelta(seconds=seconds))
    [_, _, over] = told_since(platform, before, (broken, fine))
    assert (over["error_code"], over["severity"]) == ("CANARY_RECOVERED", "info")
    assert over["context"]["group"] == broken
    # Looking leaves no trace, and a group that is forgotten is awaited again when it is seen.
    named = [state.look.group for state in look(platform, catalogue, datetime.now(UTC)).states]
    assert {broken, fine} <= set(named)
    with platform.database.transaction() as cursor:
        assert forget_group(cursor, broken) == 1
