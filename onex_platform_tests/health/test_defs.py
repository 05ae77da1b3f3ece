"""Health in the graph, on real servers: a run that measures and judges, a tick that watches."""

from __future__ import annotations

import dagster as dg
import pytest

from onex_platform import wiring
from onex_platform.base.settings import Settings
from onex_platform.health.met_events import SERVICE_HEALTH
from onex_platform.health.thresholds import EnumGroup, EnumLevel
from onex_platform_tests.support.graph import Graph, numbers
from onex_platform_tests.support.met_topics import make_topics

pytestmark = pytest.mark.servers


def test_a_run_measures_publishes_and_judges_and_a_tick_needs_no_run(
    pipeline_settings: Settings,
) -> None:
    make_topics(pipeline_settings, [SERVICE_HEALTH])
    with dg.DagsterInstance.ephemeral() as instance:
        graph = Graph(pipeline_settings, instance)
        run = graph.run("measure_health")
        [made] = run.asset_materializations_for_node(wiring.SERVICE_HEALTH.path[0])
        found = numbers(made.metadata)
        levels = sum(int(str(found[level.value])) for level in EnumLevel)
        assert found["published records"] == levels > 7
        checks = {item.check_name: item for item in run.get_asset_check_evaluations()}
        assert checks.keys() == {f"{group}_is_fine" for group in EnumGroup} | {"no_alert_is_raised"}
        assert checks["service_is_fine"].metadata["numbers"].value == 8
        assert "alerts changed, " in graph.tick("watch_alerts").skip_message
        assert len(instance.get_runs()) == 1
