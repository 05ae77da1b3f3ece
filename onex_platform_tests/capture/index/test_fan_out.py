"""A configuration names an index and its secondaries; all are told the same."""

from __future__ import annotations

import pytest

from onex_platform.base.errors import ConfigurationError, InfraConnectionError
from onex_platform.base.settings import Settings
from onex_platform.capture.config import IndexConfig
from onex_platform.capture.index import open_index
from onex_platform.capture.index.fan_out import FanOutIndex
from onex_platform.capture.index.memory import MemoryIndex
from onex_platform.capture.index.redis import RedisIndex
from onex_platform.capture.slots import PageQuery
from onex_platform.stack.ports import LOOPBACK, free_port
from onex_platform_tests.support.captured_pages import TENANT, entry_of, event, page_of

EVERYTHING = PageQuery(TENANT)


def test_every_change_reaches_all() -> None:
    first, second = MemoryIndex(), MemoryIndex()
    index = FanOutIndex(first, [second])
    old = entry_of(page_of([event("a", 1)]))
    merged = entry_of(page_of([event("a", 1), event("a", 2)], replaces=[old.info.page_id]))
    index.publish([old])
    index.replace(merged)
    for one in (index, first, second):
        assert list(one.query(EVERYTHING)) == [merged]
        assert list(one.replaced(TENANT)) == [old]
        assert one.count() == 1
    assert index.forget([merged.info.page_id]) == 1
    assert second.count() == 0


def test_an_index_that_is_down_is_told_and_the_others_go_on() -> None:
    down = RedisIndex(f"redis://{LOOPBACK}:{free_port()}/0")
    last = MemoryIndex()
    index = FanOutIndex(MemoryIndex(), [down, last])
    entry = entry_of(page_of([event("a", 1)]))
    with pytest.raises(InfraConnectionError, match=r"index\.config\.connection"):
        index.publish([entry])
    assert list(index.query(EVERYTHING)) == list(last.query(EVERYTHING)) == [entry]
    with pytest.raises(InfraConnectionError):
        index.check()
    index.close()


def test_a_configuration_names_a_primary_and_secondaries() -> None:
    config = IndexConfig.model_validate(
        {"backend": "memstore", "config": {"secondary": [{"backend": "memstore"}]}}
    )
    index = open_index(config, Settings())
    assert isinstance(index, FanOutIndex)
    assert index.backend == "memstore"
    alone = open_index(IndexConfig.model_validate({"backend": "memstore"}), Settings())
    assert isinstance(alone, MemoryIndex)


@pytest.mark.parametrize(
    ("backend", "options", "says"),
    [
        ("redis", {}, r"connection is not set, and the backend 'redis'"),
        ("redis", {"connection": "http://host"}, "no address of Redis"),
        ("clickhouse", {"connection": "clickhouse://host:9000/db"}, "port 9000"),
        ("clickhouse", {"connection": "chdb:///x", "table": "a; DROP"}, r"config\.table 'a; DROP'"),
        ("clickhouse", {"connection": "chdb:///x", "partitioning": "x'"}, r"config\.partitioning"),
        ("elasticsearch", {"connection": "http://host", "index": "A/B"}, r"config\.index 'A/B'"),
    ],
)
def test_an_index_that_can_not_be_meant_is_refused(
    backend: str, options: dict[str, str], says: str
) -> None:
    config = IndexConfig.model_validate({"backend": backend, "config": options})
    with pytest.raises(ConfigurationError, match=says):
        open_index(config, Settings())
