"""What heartbeats tell of nodes: how regular and how large they are, and how busy the nodes.

A sample: one bucket of the newest pages, which has all heartbeats of its nodes; the next minute
looks at the next bucket. Pages are read by columns, in this process, without Spark.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, NamedTuple
from uuid import UUID

from onex_platform.base.settings import RegistrationSettings
from onex_platform.domain.identity import CANARY_ID
from onex_platform.domain.order import moment_of, position_at
from onex_platform.domain.projection import ModelRegistrationProjection
from onex_platform.health.thresholds import Reading, Thresholds, percentile, reading
from onex_platform.ingest.registration_pages import read_chunk
from onex_platform.log.page_log import PageLog
from onex_platform.log.replay import PageRef
from onex_platform.projections.reader import ProjectionReaderRegistration

_WINDOW = timedelta(minutes=5)
_MOST_PAGES = 200
_COLUMNS = ["entity_id", "tenant", "occurred_at", "payload"]
# Most nodes; a few odd ones are their own affair.
_MOST = 0.95
_JITTER_SECONDS = 5


class Beat(NamedTuple):
    """A heartbeat, as far as it is looked at."""

    entity_id: UUID
    tenant: str
    at: datetime
    size: int
    payload: Mapping[str, Any]


class Limits(NamedTuple):
    """What a node may use, as far as it has said so."""

    memory_mb: float | None = None
    operations: int | None = None

    @classmethod
    def of(cls, row: ModelRegistrationProjection) -> Limits:
        memory = row.metadata.get("memory_limit_mb")
        is_number = isinstance(memory, int | float) and not isinstance(memory, bool)
        return cls(memory if is_number else None, row.capabilities.max_concurrent_requests)


def sample_beats(log: PageLog, now: datetime) -> list[Beat]:
    """Heartbeats of the last minutes: of one bucket, and no more than the settings allow."""
    bucket = int(now.timestamp() // 60) % log.buckets
    start = position_at(now - _WINDOW)
    chosen: list[PageRef] = []
    room = log.settings.health.sample_heartbeats
    for page in reversed([PageRef.of(stored) for stored in log.table.pages(start=start)]):
        if not page.holds(bucket) or moment_of(page.metadata.max_position) < now - _WINDOW:
            continue
        room -= page.events_of(bucket)
        if room < 0 or len(chosen) == _MOST_PAGES:
            break
        chosen.append(page)
    chunk = read_chunk(log.store, chosen, bucket, start, 2**63 - 1, beat_columns=_COLUMNS)
    return [
        Beat(
            UUID(bytes=row["entity_id"]),
            row["tenant"],
            row["occurred_at"],
            len(row["payload"].encode()),
            json.loads(row["payload"]),
        )
        for row in chunk.beats.to_pylist()
    ]


def limits_of(log: PageLog, beats: Iterable[Beat]) -> dict[UUID, Limits]:
    """What the nodes of the sample may use."""
    nodes = sorted({beat.entity_id for beat in beats})
    rows = ProjectionReaderRegistration.of(log).get_many(nodes, log.domain)
    return {row.entity_id: Limits.of(row) for row in rows.values()}


def beat_readings(
    beats: Iterable[Beat], limits: Mapping[UUID, Limits], expected: RegistrationSettings
) -> list[Reading]:
    """What a sample says of each tenant; a node that has beaten once says nothing of intervals.

    The canary is nobody's node, and lives by steps, not by intervals.
    """
    tenants: dict[str, dict[UUID, list[Beat]]] = defaultdict(lambda: defaultdict(list))
    for beat in beats:
        if beat.entity_id != CANARY_ID:
            tenants[beat.tenant][beat.entity_id].append(beat)
    return [
        item
        for tenant, nodes in sorted(tenants.items())
        for item in _readings(tenant, nodes, limits, expected)
    ]


def _readings(
    tenant: str,
    nodes: Mapping[UUID, list[Beat]],
    limits: Mapping[UUID, Limits],
    expected: RegistrationSettings,
) -> Iterable[Reading]:
    usual = expected.heartbeat_seconds
    regular = Thresholds(usual + _JITTER_SECONDS, expected.heartbeat_liveness_seconds)
    intervals = [
        (after - before).total_seconds()
        for node in nodes.values()
        for before, after in pairwise(sorted(beat.at for beat in node))
    ]
    last = {node: max(said, key=lambda beat: beat.at) for node, said in nodes.items()}
    if intervals:
        yield reading("heartbeat_interval_seconds", tenant, percentile(intervals, _MOST), regular)
        jitter = percentile([abs(interval - usual) for interval in intervals], _MOST)
        yield reading("heartbeat_jitter_seconds", tenant, jitter)
    yield reading("heartbeat_size_bytes", tenant, max(b.size for s in nodes.values() for b in s))
    none = Limits()
    loads: Mapping[str, list[float | None]] = {
        "node_cpu_percent": [_number(beat, "cpu_usage_percent") for beat in last.values()],
        "node_memory_percent": [
            _share(_number(beat, "memory_usage_mb"), limits.get(node, none).memory_mb)
            for node, beat in last.items()
        ],
        "node_operations_percent": [
            _share(_number(beat, "active_operations_count"), limits.get(node, none).operations)
            for node, beat in last.items()
        ],
    }
    for metric, told in loads.items():
        if values := [value for value in told if value is not None]:
            yield reading(metric, tenant, percentile(values, _MOST))


def _number(beat: Beat, field: str) -> float | None:
    value = beat.payload.get(field)
    return value if isinstance(value, int | float) else None


def _share(value: float | None, limit: float | None) -> float | None:
    return 100 * value / limit if value is not None and limit else None
