"""`onex snapshots` as a person uses it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from click.testing import CliRunner, Result

from onex_platform.base.settings import address_variables
from onex_platform.cli.main import cli
from onex_platform.snapshots.publish.publisher import UnreadableSnapshotError
from onex_platform_tests.support.events import number_id
from onex_platform_tests.support.snapshot_registry import Registry

pytestmark = pytest.mark.servers

Onex = Callable[..., Result]


@pytest.fixture
def onex(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> Onex:
    for name, value in address_variables(registry.settings).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SNAPSHOT_TOPIC", registry.config.topic)
    monkeypatch.setenv("SNAPSHOT_PARTITION_COUNT", str(registry.config.partition_count))

    def run(*arguments: str, code: int = 0) -> Result:
        answer = CliRunner().invoke(cli, ["snapshots", *arguments])
        assert answer.exit_code == code, answer.output + repr(answer.exception)
        return answer

    return run


def test_what_waits_is_published_and_shown(onex: Onex, registry: Registry) -> None:
    registry.change(1)
    assert json.loads(onex("status", "--json").stdout)["waiting_rows"] == 1
    assert json.loads(onex("publish", "--json").stdout)["snapshots"] == 1
    shown = json.loads(onex("show", str(number_id(1))).stdout)
    assert (shown["entity_id"], shown["snapshot_version"]) == (str(number_id(1)), 1)
    onex("show", "nobody", code=1)


def test_what_is_no_snapshot_is_told_in_a_line(onex: Onex, registry: Registry) -> None:
    registry.change(1)
    onex("publish")
    registry.intrude(1, b"{}")
    answer = onex("show", str(number_id(1)), code=1)
    assert isinstance(answer.exception, UnreadableSnapshotError)


def test_nodes_are_published_on_demand_and_unknown_ones_named(
    onex: Onex, registry: Registry
) -> None:
    registry.change(1)
    onex("publish")
    answer = onex("publish", str(number_id(1)), "nobody", code=1)
    assert answer.stderr == "Not in the registry: nobody.\n"
    many = [f"nobody-{n}" for n in range(30)]
    assert onex("publish", *many, code=1).stderr.endswith("nobody-9 and 20 more.\n")
    assert len(registry.published()) == 2


def test_nodes_that_are_too_large_are_named_by_whoever_publishes(
    onex: Onex, registry: Registry
) -> None:
    registry.change(1, capabilities={"text": "x" * 5_000_000})
    for command in (["publish"], ["sweep"], ["rebuild", "--yes"]):
        answer = onex(*command, code=1)
        assert answer.stderr.endswith(f"Too large for the topic: {number_id(1)}.\n")
    assert f"missing  {number_id(1)}" in onex("status", code=1).stdout


def test_a_sweep_compares_repairs_and_says_so(onex: Onex, registry: Registry) -> None:
    registry.change(1)
    with registry.store.database.transaction() as cursor:
        cursor.execute("DELETE FROM outbox")
    assert f"missing  {number_id(1)}" in onex("sweep", "--dry-run", code=1).stdout
    assert registry.published() == []
    assert json.loads(onex("sweep", "--json").stdout)["queued"] == 1
    onex("sweep", "--dry-run")
    registry.require_topic_equals_rows()


def test_contents_are_compared_if_asked_for(onex: Onex, registry: Registry) -> None:
    registry.change(1)
    onex("publish")
    assert json.loads(onex("status", "--json").stdout)["contents_compared"] == 0
    assert json.loads(onex("status", "--contents", "--json").stdout)["contents_compared"] == 1
    with registry.store.database.transaction() as cursor:
        cursor.execute("UPDATE registration_projections SET node_name = 'renamed by hand'")
    onex("sweep", "--dry-run")
    onex("status", "--contents", code=1)
    assert f"different  {number_id(1)}" in onex("sweep", "--contents", "--dry-run", code=1).stdout
    assert json.loads(onex("sweep", "--contents", "--json").stdout)["raised"] == 1
    onex("status", "--contents")


def test_a_rebuild_asks_first(onex: Onex, registry: Registry) -> None:
    registry.change(1)
    onex("rebuild", code=1)
    assert registry.published() == []
    assert "1 records published." in onex("rebuild", "--yes").stdout
    registry.require_topic_equals_rows()


def test_a_new_version_of_the_topic_takes_over_with_more_partitions(
    onex: Onex, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.change(1, 2, 3)
    onex("publish")
    config = registry.config.model_copy(
        update={"topic": registry.config.topic.replace(".v1", ".v2"), "partition_count": 5}
    )
    registry.change(1)
    registry.close(2)
    with monkeypatch.context() as only_for_this_command:
        only_for_this_command.setenv("SNAPSHOT_TOPIC", config.topic)
        only_for_this_command.setenv("SNAPSHOT_PARTITION_COUNT", "5")
        onex("rebuild", "--yes")
    registry.change(1)
    onex("publish")  # the platform still serves the old one
    registry.require_topic_equals_rows()
    registry.change(3)
    monkeypatch.setenv("SNAPSHOT_TOPIC", config.topic)
    monkeypatch.setenv("SNAPSHOT_PARTITION_COUNT", "5")
    onex("publish")
    onex("sweep")
    replace(registry, config=config).require_topic_equals_rows()


def test_the_topic_is_altered_to_what_the_variables_say(
    onex: Onex, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "as it should be" in onex("topic").stdout
    monkeypatch.setenv("SNAPSHOT_MAX_COMPACTION_LAG_MS", "90000")
    assert "would be altered" in onex("topic", "--dry-run").stdout
    assert "max.compaction.lag.ms 300000 → 90000" in onex("topic").stdout
    assert "as it should be" in onex("topic").stdout
