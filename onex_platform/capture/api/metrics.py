"""001's nine metrics and a few more. No label grows with the number of writers: the largest are
named, all others together are `other`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from heapq import nlargest
from time import monotonic
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily

from onex_platform.capture.acceptance import Intake
from onex_platform.capture.buffers import Buffer

TOP_WRITERS = 20
OTHER = "other"
_SIZES = tuple(1024.0 * 4**power for power in range(9))


class Metrics:
    """What an instance counts."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.events = self._counter("events", "Events captured", "durability")
        self.refused = self._counter("refused", "Events refused", "code")
        self.page_writes = self._counter("page_writes", "Pages written", "reason")
        self.storage_errors = self._counter("storage_errors", "Storage backend errors")
        self.index_errors = self._counter("index_publish_errors", "Index publish failures")
        self.disconnects = self._counter("session_disconnects", "Disconnect-triggered flushes")
        self.dead_letters = self._counter("dead_letters", "Pages given up by retries")
        self.damaged = self._counter("wal_damaged_records", "Records of the log found damaged")
        self.write_seconds = Histogram(
            "snapshotter_page_write_duration_seconds",
            "Time to write a page",
            registry=self.registry,
        )
        self.page_bytes = Histogram(
            "snapshotter_page_size_bytes",
            "Sizes of stored pages",
            registry=self.registry,
            buckets=_SIZES,
        )

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"snapshotter_{name}", text, labels, registry=self.registry)

    def watch(self, intake: Intake) -> None:
        """Report an intake's buffers whenever somebody asks."""
        self.registry.register(_BufferCollector(intake))


class _BufferCollector:
    """Gauges that are computed when they are read."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake

    def collect(self) -> Iterator[GaugeMetricFamily]:
        now, intake = monotonic(), self._intake
        top, others = _top_writers(list(intake.buffers))
        for name, text, value, combined in (
            ("size_bytes", "Buffered bytes", lambda buffer: buffer.size, sum),
            ("event_count", "Buffered events", lambda buffer: len(buffer.held), sum),
            ("age_seconds", "Age of the oldest event", lambda buffer: now - buffer.oldest_at, max),
        ):
            gauge = GaugeMetricFamily(
                f"snapshotter_buffer_{name}", text, labels=["tenant", "writer_id"]
            )
            for buffer in top:
                gauge.add_metric([*buffer.key], value(buffer))
            if others:
                gauge.add_metric(["", OTHER], combined(map(value, others)))
            yield gauge
        for name, text, number in (
            ("memory_bytes", "Bytes of events in memory", intake.memory.resident_bytes),
            ("active_writers", "Writers with a buffer", len(intake.buffers)),
            ("waiting_pages", "Pages cut and not stored", len(intake.pages)),
            ("oldest_unflushed_seconds", "Age of the oldest event in no stored page",
             intake.oldest_unflushed(now)),
            ("oldest_unindexed_seconds", "Age of the oldest event in no indexed page",
             intake.oldest_unindexed(now)),
        ):  # fmt: skip
            yield GaugeMetricFamily(f"snapshotter_{name}", text, value=number)


def _top_writers(buffers: list[Buffer]) -> tuple[list[Buffer], list[Buffer]]:
    top = nlargest(TOP_WRITERS, buffers, key=lambda buffer: buffer.size)
    named = {buffer.key for buffer in top}
    return top, [buffer for buffer in buffers if buffer.key not in named]


class SlotHealth:
    """How a slot's server has been of late."""

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self.last_error: str | None = None
        self.last_success: datetime | None = None
        self._outcomes: deque[bool] = deque(maxlen=1000)
        self._seconds: deque[float] = deque(maxlen=1000)

    def succeeded(self, seconds: float) -> None:
        self.last_error = None
        self.last_success = datetime.now(UTC)
        self._outcomes.append(True)
        self._seconds.append(seconds)

    def failed(self, error: Exception) -> None:
        self.last_error = str(error)
        self._outcomes.append(False)

    @property
    def is_healthy(self) -> bool:
        return self.last_error is None

    @property
    def success_rate(self) -> float:
        return sum(self._outcomes) / len(self._outcomes) if self._outcomes else 1.0

    @property
    def average_ms(self) -> float:
        return 1000 * sum(self._seconds) / len(self._seconds) if self._seconds else 0.0

    def status(self) -> dict[str, Any]:
        moment = self.last_success.isoformat() if self.last_success else None
        return {
            "backend": self.backend,
            "status": "healthy" if self.is_healthy else "unhealthy",
            "error": self.last_error,
            "last_success": moment,
            "success_rate": round(self.success_rate, 4),
        }
