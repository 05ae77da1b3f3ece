"""The index in Redis, alone or as a cluster, by 001's `keyvalue_basic`.

All keys of a tenant share a hash tag, and with it a slot: a script changes them in one step, also
in a cluster. A page's entry is a key of its own, which Redis lets expire. Sorted sets find the
pages of a tenant and of a writer by their start; nothing ever asks for KEYS. Names of expired pages
leave the tenant's set with later publications; a writer's set expires with its newest page.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import redis
from redis.cluster import RedisCluster
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeout

from onex_platform.base.errors import (
    ConfigurationError,
    InfraConnectionError,
    InfraError,
    InfraTimeoutError,
)
from onex_platform.capture.captured_events import PageEntry
from onex_platform.capture.flush.page_json import decode_entry, encode_entry
from onex_platform.capture.index.matching import found, in_order, pieces
from onex_platform.capture.slots import PageQuery

_TIMEOUT_SECONDS = 10.0
_HINT = "Check index.config.connection of the snapshotter."
# KEYS: entry, pages, replaced, expiries, one per writer.
# ARGV: id, entry, start, seconds to live or 0, now, ids that it replaces.
_PUBLISH = """
local entry, pages, replaced, expiries = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local id, ttl, now = ARGV[1], tonumber(ARGV[4]), tonumber(ARGV[5])
if redis.call('EXISTS', entry) == 0 then
    redis.call('SET', entry, ARGV[2])
    if ttl > 0 then
        redis.call('PEXPIRE', entry, math.ceil(ttl * 1000))
        redis.call('ZADD', expiries, now + ttl, id)
    end
end
redis.call('ZADD', pages, ARGV[3], id)
for number = 5, #KEYS do
    redis.call('ZADD', KEYS[number], ARGV[3], id)
    if ttl > 0 then redis.call('PEXPIRE', KEYS[number], math.ceil(ttl * 1000)) end
end
for number = 6, #ARGV do redis.call('SADD', replaced, ARGV[number]) end
for _, old in ipairs(redis.call('ZRANGEBYSCORE', expiries, '-inf', now)) do
    redis.call('ZREM', pages, old)
end
redis.call('ZREMRANGEBYSCORE', expiries, '-inf', now)
"""
# KEYS: pages or those of a writer, replaced. ARGV: the last start that is wanted; 1 for replaced
# pages, 0 for the others. Scores are rounded: what is found is judged again.
_FIND = """
local ids = {}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1])) do
    if redis.call('SISMEMBER', KEYS[2], id) == tonumber(ARGV[2]) then ids[#ids + 1] = id end
end
return ids
"""


class RedisIndex:
    """Entries in Redis; `key_prefix` keeps several archives apart."""

    backend = "redis"

    def __init__(
        self,
        connection: str,
        *,
        key_prefix: str = "snapshot:",
        ttl_seconds: float | None = None,
        cluster: bool = False,
    ) -> None:
        client = RedisCluster if cluster else redis.Redis
        self._prefix = key_prefix
        self._ttl = ttl_seconds or 0
        with _translated():
            try:
                self._redis: Any = client.from_url(
                    connection,
                    socket_timeout=_TIMEOUT_SECONDS,
                    socket_connect_timeout=_TIMEOUT_SECONDS,
                )
            except ValueError as error:
                raise ConfigurationError(
                    f"index.config.connection is no address of Redis: {error}.",
                    hint="Expected redis://host:6379/0.",
                ) from None
            self._publish = self._redis.register_script(_PUBLISH)
            self._find = self._redis.register_script(_FIND)

    def publish(self, entries: Sequence[PageEntry]) -> None:
        """Page by page: each is one change, and publishing again is harmless."""
        with _translated():
            for entry in entries:
                info = entry.info
                tenant = self._tenant(info.tenant)
                self._redis.sadd(f"{self._prefix}tenants", info.tenant)
                self._publish(
                    keys=[
                        f"{tenant}:page:{info.page_id}",
                        f"{tenant}:pages",
                        f"{tenant}:replaced",
                        f"{tenant}:expiries",
                        *(f"{tenant}:writer:{span.writer_id}" for span in info.writers),
                    ],
                    args=[
                        info.page_id,
                        encode_entry(entry),
                        info.start_time_us,
                        self._ttl,
                        time.time(),
                        *info.replaces,
                    ],
                )

    def replace(self, entry: PageEntry) -> None:
        self.publish([entry])

    def query(self, query: PageQuery) -> Iterator[PageEntry]:
        tenant = self._tenant(query.tenant)
        pages = (
            f"{tenant}:pages" if query.writer_id is None else f"{tenant}:writer:{query.writer_id}"
        )
        before = "+inf" if query.until_us is None else str(query.until_us)
        return found(query, self._entries(tenant, pages, before, replaced=False), set())

    def forget(self, page_ids: Sequence[str]) -> int:
        count = 0
        with _translated():
            for tenant in self._tenants():
                for some in pieces(page_ids):
                    for page_id in some:
                        count += self._redis.delete(f"{tenant}:page:{page_id}")
                    self._redis.zrem(f"{tenant}:pages", *some)
        return count

    def replaced(self, tenant: str) -> Iterator[PageEntry]:
        place = self._tenant(tenant)
        return iter(in_order(self._entries(place, f"{place}:pages", "+inf", replaced=True)))

    def count(self) -> int:
        return sum(
            1
            for tenant in self._tenants()
            for _ in self._entries(tenant, f"{tenant}:pages", "+inf", replaced=False)
        )

    def check(self) -> None:
        with _translated():
            self._redis.ping()

    def close(self) -> None:
        self._redis.close()

    def _entries(
        self, tenant: str, pages: str, before: str, *, replaced: bool
    ) -> Iterator[PageEntry]:
        """The pages that one script finds; the entries of replaced ones stay readable."""
        with _translated():
            ids = self._find(keys=[pages, f"{tenant}:replaced"], args=[before, int(replaced)])
            for some in pieces([page_id.decode() for page_id in ids]):
                for value in self._redis.mget([f"{tenant}:page:{page_id}" for page_id in some]):
                    if value is not None:
                        yield decode_entry(value)

    def _tenants(self) -> list[str]:
        with _translated():
            return [
                self._tenant(name.decode())
                for name in self._redis.smembers(f"{self._prefix}tenants")
            ]

    def _tenant(self, tenant: str) -> str:
        """The beginning of a tenant's keys; what is in braces decides the slot."""
        return f"{self._prefix}{{{quote(tenant, safe='')}}}"


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except RedisTimeout as error:
        raise InfraTimeoutError(f"Redis did not answer in time: {error}.", hint=_HINT) from error
    except (redis.exceptions.ConnectionError, redis.exceptions.ClusterDownError) as error:
        raise InfraConnectionError(f"Redis can't be reached: {error}.", hint=_HINT) from error
    except RedisError as error:
        raise InfraError(f"Redis refused a command: {error}.", hint=_HINT) from error
