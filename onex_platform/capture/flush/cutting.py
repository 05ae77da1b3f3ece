"""Where pages begin and end. Pure: it sees sizes and says how many events go together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from onex_platform.capture.captured_events import CutReason
from onex_platform.capture.writers import WriterKey


@dataclass(frozen=True, slots=True)
class CutLimits:
    """When a buffer becomes a page. A writer with less than `share_below_bytes` shares a page with
    others of its tenant, so that many quiet writers don't make many small objects."""

    max_events: int = 1000
    max_bytes: int = 10 * 1024 * 1024
    max_age_seconds: float = 300.0
    idle_seconds: float = 60.0
    linger_seconds: float = 5.0  # how long small rests of ended sessions wait for each other
    share_below_bytes: int = 1024 * 1024


class Part(NamedTuple):
    """So many events from the start of a writer's buffer."""

    key: WriterKey
    events: int


def runs(sizes: Iterable[int], limits: CutLimits) -> Iterator[int]:
    """How many events go into each page. One that is larger than a page gets a page of its own."""
    count = total = 0
    for size in sizes:
        if count and (count == limits.max_events or total + size > limits.max_bytes):
            yield count
            count = total = 0
        count += 1
        total += size
    if count:
        yield count


def full_runs(sizes: Sequence[int], limits: CutLimits) -> list[int]:
    """The pages that can't grow any more; what follows them may wait for more events."""
    pages = list(runs(sizes, limits))
    last = sizes[len(sizes) - pages[-1] :] if pages else []
    is_full = len(last) >= limits.max_events or sum(last) >= limits.max_bytes
    return pages if is_full else pages[:-1]


def limit_reached(events: int, size: int, limits: CutLimits) -> CutReason | None:
    if events >= limits.max_events:
        return CutReason.COUNT
    if size >= limits.max_bytes:
        return CutReason.SIZE
    return None


def plan(buffers: Sequence[tuple[WriterKey, Sequence[int]]], limits: CutLimits) -> list[list[Part]]:
    """Pages for everything in these buffers: large ones alone, small ones together by tenant."""
    small_below = min(limits.share_below_bytes, limits.max_bytes)
    pages: list[list[Part]] = []
    shared: dict[str, list[tuple[WriterKey, int, int]]] = {}
    for key, sizes in buffers:
        total = sum(sizes)
        if total < small_below and len(sizes) < limits.max_events:
            shared.setdefault(key[0], []).append((key, len(sizes), total))
        else:
            pages += [[Part(key, count)] for count in runs(sizes, limits)]
    for small in shared.values():
        pages += _shared_pages(small, limits)
    return pages


def _shared_pages(
    small: Iterable[tuple[WriterKey, int, int]], limits: CutLimits
) -> Iterator[list[Part]]:
    page: list[Part] = []
    events = size = 0
    for key, count, total in small:
        if page and (events + count > limits.max_events or size + total > limits.max_bytes):
            yield page
            page, events, size = [], 0, 0
        page.append(Part(key, count))
        events += count
        size += total
    if page:
        yield page
