"""Servers that only captured pages need; each is started once per run of the suite."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from onex_platform_tests.support.opensearch import running_opensearch
from onex_platform_tests.support.redis_server import running_redis


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_redis(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture(scope="session")
def cluster_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_redis(tmp_path_factory.mktemp("cluster"), cluster=True) as url:
        yield url


@pytest.fixture(scope="session")
def clickhouse_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """ClickHouse's engine in this process; its wire is not tested."""
    return f"chdb:///{tmp_path_factory.mktemp('clickhouse') / 'data'}"


@pytest.fixture(scope="session")
def opensearch_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_opensearch(tmp_path_factory.mktemp("opensearch")) as url:
        yield url
