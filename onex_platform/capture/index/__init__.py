"""001's index slot: which servers a configuration means."""

from __future__ import annotations

from pydantic import SecretStr

from onex_platform.base.errors import ConfigurationError
from onex_platform.base.settings import Settings
from onex_platform.capture.config import IndexConfig, IndexOptions, SecondaryIndex
from onex_platform.capture.index.fan_out import FanOutIndex
from onex_platform.capture.index.memory import MemoryIndex
from onex_platform.capture.slots import PageIndex

_DAY_SECONDS = 86_400


def open_index(index: IndexConfig, settings: Settings) -> PageIndex:
    """The index that the configuration names, with its secondaries."""
    primary = _open(index.backend, index.config, settings)
    secondaries = [_open(other.backend, other, settings) for other in index.config.secondary]
    return FanOutIndex(primary, secondaries) if secondaries else primary


def _open(backend: str, options: IndexOptions | SecondaryIndex, settings: Settings) -> PageIndex:
    """A client library is loaded only by those who use it."""
    ttl = None if options.ttl_days is None else options.ttl_days * _DAY_SECONDS
    if backend == "postgres":
        from onex_platform.capture.index.postgres import PostgresIndex

        return PostgresIndex(_reaching(options.connection, settings), ttl)
    if backend == "memstore":
        return MemoryIndex(ttl)
    address = _address(options.connection, backend)
    if backend == "redis":
        from onex_platform.capture.index.redis import RedisIndex

        return RedisIndex(
            address,
            key_prefix=options.key_prefix,
            ttl_seconds=ttl,
            cluster=options.cluster_mode,
        )
    if backend == "clickhouse":
        from onex_platform.capture.index.clickhouse import ClickHouseIndex

        return ClickHouseIndex(
            address,
            table=options.table,
            partitioning=options.partitioning,
            ttl_seconds=ttl,
        )
    from onex_platform.capture.index.elasticsearch import ElasticsearchIndex

    return ElasticsearchIndex(address, index=options.index, ttl_seconds=ttl)


def _reaching(connection: SecretStr | None, settings: Settings) -> Settings:
    """The platform's database, unless the index has one of its own."""
    if connection is None:
        return settings
    postgres = settings.postgres.model_copy(update={"url": connection})
    return settings.model_copy(update={"postgres": postgres})


def _address(connection: SecretStr | None, backend: str) -> str:
    if connection is None:
        raise ConfigurationError(
            f"index.config.connection is not set, and the backend {backend!r} needs it."
        )
    return connection.get_secret_value()
