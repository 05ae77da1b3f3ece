"""The rebuild in Dagster: one node, a window or everything, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest

from onex_platform.base.errors import ConfigurationError
from onex_platform.ingest.archive import PageArchive
from onex_platform_tests.support.events import TENANT, at
from onex_platform_tests.support.graph import Graph, numbers
from onex_platform_tests.support.live_registry import damage, node

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.servers


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


def _rebuild(graph: Graph, **config: Any) -> dict[str, Any]:
    config = {"ops": {"rebuild_rows": {"config": {"dry_run": False, **config}}}}
    run = graph.run("rebuild_registration", run_config=config)
    [output] = [
        event for event in run.events_for_node("rebuild_rows") if event.is_successful_output
    ]
    return numbers(output.step_output_data.metadata)


def test_one_node_or_a_window_is_rebuilt_and_nothing_else(
    spark: SparkSession, live: PageArchive, instance: dg.DagsterInstance
) -> None:
    graph = Graph(live.settings, instance)
    damage(live)
    window = {"window_start": at(2).isoformat(), "window_end": at(4).isoformat()}
    assert _rebuild(graph, dry_run=True, **window)["missing"] == 1
    one = _rebuild(graph, entity="node-1", tenant=TENANT)
    assert (one["differing"], one["equal"]) == (1, 0)
    assert _rebuild(graph, entity=f"{{{node(1)}}}")["equal"] == 1
    touched = _rebuild(graph, **window)
    assert (touched["differing"], touched["missing"], touched["equal"]) == (1, 1, 2)
    with pytest.raises(Exception, match="1 rows would change; at most 0 were agreed to"):
        _rebuild(graph, most_changes=0)
    assert _rebuild(graph, window_end=at(0).isoformat())["extra"] == 0
    assert _rebuild(graph)["extra"] == 1


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"window_start": "2026-03-01T12:00:00"}, "has no time zone; add Z for UTC."),
        ({"window_end": "noon"}, "'noon' is no time"),
        ({"entity": "node-1", "window_start": "2026-03-01T12:00:00Z"}, "exclude each other"),
        (
            {"window_start": "2026-03-02T00:00:00Z", "window_end": "2026-03-01T00:00:00Z"},
            "is not after its start",
        ),
        ({"entity": ""}, "node_id is empty"),
        ({"tenant": "acme"}, "A tenant only tells whose node is meant."),
    ],
)
def test_what_the_command_refuses_the_run_refuses(
    archive: PageArchive, instance: dg.DagsterInstance, config: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        _rebuild(Graph(archive.settings, instance), **config)
