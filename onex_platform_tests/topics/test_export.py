"""The catalogue for other tools."""

from __future__ import annotations

import json

from click.testing import CliRunner

from onex_platform.cli.topics import command
from onex_platform.topics.catalogue import load_catalogue, load_whole_catalogue


def _run(*arguments: str) -> str:
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_asyncapi_has_a_channel_for_every_topic_with_its_kafka_binding() -> None:
    document = json.loads(_run("export"))
    assert document["asyncapi"] == "3.0.0"
    assert len(document["channels"]) == len(load_whole_catalogue())
    heartbeat = document["channels"]["onex_node_heartbeat_published_v1"]
    binding = heartbeat["bindings"]["kafka"]
    assert (binding["partitions"], binding["replicas"]) == (3, 3)
    assert binding["topicConfiguration"]["retention.ms"] == 3_600_000
    assert heartbeat["messages"]["record"]["payload"]["schema"]["properties"]["payload"]
    search = document["channels"]["kb_qrs_search_requests_v1"]
    assert search["address"] == "prod.omnibase.kb.qrs.search-requests.v1"
    for operation in document["operations"].values():
        assert operation["channel"]["$ref"].removeprefix("#/channels/") in document["channels"]


def test_the_enumeration_holds_the_onex_topics_and_runs() -> None:
    module: dict[str, object] = {}
    exec(_run("export", "--format", "python"), module)  # noqa: S102 - that is its purpose
    members = {member.value for member in module["EnumONEXTopic"]}  # type: ignore[attr-defined]
    assert members == {c.topic for c in load_catalogue() if c.legacy_of is None}


def test_the_graph_says_who_publishes_and_reads() -> None:
    assert "node  publishes  onex.node.heartbeat.published.v1" in _run("graph")
    edges = json.loads(_run("graph", "--format", "json", "--context", "kb"))
    assert {"role": "gateway", "verb": "publishes", "topic": "kb.qrs.search-requests.v1"} in edges
    drawn = _run("graph", "--format", "mermaid", "--context", "kb")
    assert drawn.startswith("flowchart LR")
    assert "gateway([gateway]) --> kb_qrs_search_requests_v1" in drawn


def test_a_name_is_explained() -> None:
    told = _run("name", "prod.omnibase.kb.qrs.search-requests.v1")
    assert "namespace" in told
    assert "kb/qrs/search-requests/v1" in told
