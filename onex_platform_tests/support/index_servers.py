"""An empty index of each kind, on real servers."""

from __future__ import annotations

from uuid import uuid4

import pytest

from onex_platform.capture.index.clickhouse import ClickHouseIndex
from onex_platform.capture.index.elasticsearch import ElasticsearchIndex
from onex_platform.capture.index.memory import MemoryIndex
from onex_platform.capture.index.postgres import PostgresIndex
from onex_platform.capture.index.redis import RedisIndex
from onex_platform.capture.slots import PageIndex

_SERVERS = ("postgres", "redis", "cluster", "clickhouse", "elasticsearch")
EVERY_INDEX = [
    "memstore",
    *(pytest.param(name, marks=pytest.mark.servers) for name in _SERVERS),
]


def open_one(request: pytest.FixtureRequest, ttl_seconds: float | None = None) -> PageIndex:
    """The kind that the test's parameter names."""
    if request.param == "memstore":
        return MemoryIndex(ttl_seconds)
    if request.param == "postgres":
        return PostgresIndex(request.getfixturevalue("store_settings"), ttl_seconds)
    if request.param == "clickhouse":
        address = request.getfixturevalue("clickhouse_url")
        return ClickHouseIndex(address, table=f"t{uuid4().hex}", ttl_seconds=ttl_seconds)
    if request.param == "elasticsearch":
        address = request.getfixturevalue("opensearch_url")
        return ElasticsearchIndex(address, index=f"t{uuid4().hex}", ttl_seconds=ttl_seconds)
    return RedisIndex(
        request.getfixturevalue(f"{request.param}_url"),
        key_prefix=f"{uuid4()}:",
        ttl_seconds=ttl_seconds,
        cluster=request.param == "cluster",
    )
