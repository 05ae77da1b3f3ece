"""From an operator's order to the topic: requests pass through the log and are published once."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from onex_platform.base.settings import Settings
from onex_platform.domain.events import EnumEventKind
from onex_platform.engines.kafka.clients import end_positions, read_to_end
from onex_platform.health.asking import Order, ask_everybody, ask_nodes
from onex_platform.ingest.verification import verify_log
from onex_platform.snapshots.publish.relay import open_relay
from onex_platform.topics.catalogue import load_catalogue
from onex_platform_tests.support.archives import open_archive
from onex_platform_tests.support.broker import send, sent
from onex_platform_tests.support.events import TENANT
from onex_platform_tests.support.folded_logs import require_live_equals_replay
from onex_platform_tests.support.pipeline_runs import drained

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.servers

Kind = EnumEventKind
REQUESTS = load_catalogue().for_kind(Kind.INTROSPECTION_REQUESTED).topic


def test_a_request_takes_its_place_in_the_log_and_is_published_once(
    spark: SparkSession, pipeline_settings: Settings
) -> None:
    before = end_positions(pipeline_settings, [REQUESTS])
    order = Order("ada", "contracts have changed", datetime.now(UTC))
    with open_archive(pipeline_settings) as archive:
        send(pipeline_settings, [sent(Kind.NODE_INTROSPECTION, "worker-1")])
        drained(spark, archive)
        send(pipeline_settings, [sent(Kind.NODE_ACK, "worker-1")])
        drained(spark, archive)
        platform = archive.platform
        assert ask_everybody(platform, [], order) == [TENANT]
        # One that is known and one that is not.
        assert ask_nodes(platform, ["worker-1", "stranger"], None, order) == 2
        drained(spark, archive)
        with open_relay(pipeline_settings, load_catalogue(), database=archive.database) as relay:
            relay.publish_pending()
        # They come back through Kafka, and the order is given again.
        assert ask_nodes(platform, ["worker-1", "stranger"], None, order) == 2
        drained(spark, archive)
        with open_relay(pipeline_settings, load_catalogue(), database=archive.database) as relay:
            assert relay.publish_pending().events == 0
        require_live_equals_replay(archive)
        assert verify_log(archive.log).faults == []
    said: list[dict[str, Any]] = [
        json.loads(message.value() or b"{}")
        for message in read_to_end(pipeline_settings, [REQUESTS], before)
    ]
    targets = [item["payload"].get("target_node_ids") for item in said]
    assert sorted(map(str, targets)) == ["None", "['stranger']", "['worker-1']"]
    assert {item["payload"]["reason"] for item in said} == {order.reason}
    assert {item["payload"]["ordered_by"] for item in said} == {"ada"}
