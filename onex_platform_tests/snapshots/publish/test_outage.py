"""A broker that is gone for a while: changes wait, and reach the topic when it is back."""

from __future__ import annotations

from pathlib import Path

import pytest

from onex_platform import stack
from onex_platform.base.errors import InfraError
from onex_platform.base.settings import BreakerSettings, Settings
from onex_platform.topics.catalogue import load_catalogue
from onex_platform.topics.provision import create_topics
from onex_platform_tests.support.events import number_id
from onex_platform_tests.support.snapshot_registry import open_registry
from onex_platform_tests.support.stacks import embedded_settings

pytestmark = pytest.mark.servers

CHANGES = 1000
NODES = 50


def test_a_thousand_changes_during_an_outage_reach_the_topic_afterwards(
    store_settings: Settings, tmp_path: Path
) -> None:
    """Minutes of outage are seconds here: the time-outs are shortened by settings."""
    own = embedded_settings(tmp_path / "stack", kafka_port=None)
    attached = stack.up(own, services=("kafka",))
    try:
        kafka = attached.kafka.model_copy(
            update={"connect_timeout_seconds": 0.5, "request_timeout_seconds": 2}
        )
        settings = store_settings.model_copy(
            update={
                "kafka": kafka,
                "breaker": BreakerSettings(failure_threshold=3, reset_seconds=0.5),
            }
        )
        create_topics(settings, load_catalogue())
        with open_registry(settings) as registry, registry.relay(transaction_seconds=2) as relay:
            registry.change(*range(NODES))
            assert relay.publish_pending().snapshots == NODES
            stack.down(own)
            for change in range(CHANGES):
                step = registry.close if change % 10 == 9 else registry.change
                step(change % NODES)
                if change % (CHANGES // 4) == 0:
                    with pytest.raises(InfraError):
                        relay.publish_pending()
            assert registry.waiting().rows == CHANGES
            # The same port again: clients know no other.
            port = int((settings.kafka.bootstrap_servers or "").rpartition(":")[2])
            stack.up(embedded_settings(tmp_path / "stack", kafka_port=port), services=("kafka",))
            account = relay.publish_pending()
            assert account.snapshots + account.tombstones == NODES
            assert account.coalesced == CHANGES - NODES
            registry.require_topic_equals_rows()
            assert registry.store.node(number_id(0)).row_version == 1 + CHANGES // NODES
    finally:
        stack.down(own)
