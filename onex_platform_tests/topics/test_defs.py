"""How runs begin and end, told as events: in order, again under the same ids, without secrets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest

from onex_platform.base import faults
from onex_platform.base.settings import Settings
from onex_platform.definitions import build_definitions
from onex_platform.domain.events import EnumEventKind
from onex_platform.engines.kafka.clients import end_positions, read_to_end
from onex_platform.engines.postgres.database import open_database
from onex_platform.governance.provision import create_topics
from onex_platform.migration.phase_table import begin_change, end_change, phases_alone
from onex_platform.topics import defs as topic_defs
from onex_platform.topics.catalogue import Catalogue, load_catalogue
from onex_platform.topics.migration_intent import EnumMigrationPhase as Phase
from onex_platform_tests.support.contracts import with_own_topics
from onex_platform_tests.support.graph import Graph
from onex_platform_tests.support.moving_topics import intent

pytestmark = pytest.mark.servers

Kind = EnumEventKind
NO_NEWS = "No run has begun or ended"


@pytest.fixture
def graph(store_settings: Settings) -> Iterator[Graph]:
    create_topics(store_settings, load_catalogue())
    with dg.DagsterInstance.ephemeral() as instance:
        yield Graph(store_settings, instance)


def test_a_run_is_a_workflow_that_began_and_ended(graph: Graph) -> None:
    @dg.op
    def refuse() -> None:
        raise ConnectionError("password=hunter2 was refused")

    @dg.job
    def goes() -> None:
        pass

    @dg.job
    def fails() -> None:
        refuse()

    def killed() -> None:
        raise TimeoutError("the tick dies")

    kinds = (Kind.WORKFLOW_STARTED, Kind.WORKFLOW_COMPLETED, Kind.WORKFLOW_FAILED)
    topics = {load_catalogue().for_kind(kind).topic: kind for kind in kinds}
    before = end_positions(graph.settings, topics)
    completed = goes.execute_in_process(instance=graph.instance)
    failed = fails.execute_in_process(instance=graph.instance, raise_on_error=False)
    cancelled = graph.instance.create_run_for_job(goes, status=dg.DagsterRunStatus.CANCELING)
    graph.instance.report_run_canceled(cancelled)
    # Told, and then killed before that was noted: told again, under the same ids.
    faults.arm("after:signals.send", killed)
    with pytest.raises(TimeoutError):
        graph.tick("publish_runs")
    graph.tick("publish_runs")
    told: dict[str, list[Any]] = {}
    for message in read_to_end(graph.settings, topics, before):
        value, key = message.value() or b"", message.key() or b""
        event = json.loads(value)
        assert topics[message.topic() or ""].event_type == event["event_type"]
        assert key.decode() == event["payload"]["workflow_id"]
        assert event["payload"]["workflow_name"] in ("goes", "fails")
        assert b"hunter2" not in value
        told.setdefault(event["event_id"], []).append(event)
    assert {len(times) for times in told.values()} == {2}
    ends = {
        (e["payload"]["workflow_id"], e["event_type"]): e["payload"] for [e, _] in told.values()
    }
    assert ends.keys() == {
        (completed.run_id, Kind.WORKFLOW_STARTED.event_type),
        (completed.run_id, Kind.WORKFLOW_COMPLETED.event_type),
        (failed.run_id, Kind.WORKFLOW_STARTED.event_type),
        (failed.run_id, Kind.WORKFLOW_FAILED.event_type),
        (cancelled.run_id, Kind.WORKFLOW_FAILED.event_type),
    }
    codes = {
        run: payload["error_code"] for (run, _), payload in ends.items() if "error_code" in payload
    }
    assert codes == {failed.run_id: "CONNECTION_ERROR", cancelled.run_id: "RUN_CANCELED"}


@pytest.mark.parametrize(
    ("phase", "counts"), [(Phase.ASSESS, [1, 0]), (Phase.DUAL, [1, 1]), (Phase.FREEZE, [0, 1])]
)
def test_runs_are_told_where_the_move_of_their_topic_has_come_to(
    graph: Graph, phase: Phase, counts: list[int]
) -> None:
    @dg.op
    def refuse() -> None:
        raise ConnectionError("no" * 1_000_000)  # more than a record holds

    @dg.job
    def fails() -> None:
        refuse()

    own = with_own_topics(load_catalogue(), Kind.WORKFLOW_FAILED)
    source = own.for_kind(Kind.WORKFLOW_FAILED)
    target = source.model_copy(update={"topic": f"{source.topic}1"})
    create_topics(graph.settings, Catalogue([source, target]))
    moving = Catalogue([*own, target], {source.topic: intent(target.topic)})
    graph.definitions = build_definitions(settings=graph.settings, catalogue=moving)
    with open_database(graph.settings) as database, phases_alone(database) as cursor:
        begin_change(
            cursor, source.topic, target.topic, (Phase.ASSESS, phase), by="tests", reason=None
        )
        end_change(cursor, source.topic, phase)
    fails.execute_in_process(instance=graph.instance, raise_on_error=False)
    assert graph.tick("publish_runs").cursor is not None
    found = [list(read_to_end(graph.settings, [c.topic])) for c in (source, target)]
    assert [len(messages) for messages in found] == counts


def test_changes_of_runs_are_told_in_their_order_however_many_there_are(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    @dg.job
    def goes() -> None:
        pass

    monkeypatch.setattr(topic_defs, "CHANGES_PER_TICK", 2)
    topics = [
        load_catalogue().for_kind(kind).topic
        for kind in (Kind.WORKFLOW_STARTED, Kind.WORKFLOW_COMPLETED)
    ]
    before = end_positions(graph.settings, topics)
    runs = [goes.execute_in_process(instance=graph.instance).run_id for _ in range(5)]
    told, cursor = list[tuple[str, str]](), None
    while NO_NEWS not in (found := graph.tick("publish_runs", cursor=cursor)).skip_message:
        for message in read_to_end(graph.settings, topics, before):
            told.append(((message.key() or b"").decode(), str(message.topic())))
        before, cursor = end_positions(graph.settings, topics), found.cursor
    assert sorted(told) == sorted((run, topic) for run in runs for topic in topics)
