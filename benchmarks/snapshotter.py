"""What the snapshotter's promises cost: events per second by way of publishing, against a peer.

    python -m benchmarks.snapshotter
    python -m benchmarks.snapshotter --seconds 5 --rounds 5

1 KiB events; client and server share the machine. Interleaved: every contestant once per round, the
median of the rounds counts.

- buffered, durable: unary calls on 64 connections, answered from memory or after the log's sync
- session: 64 streams with 16 events in flight each
- batches: 16 connections, batches of 100
- peer: NATS JetStream, file storage, `sync_interval: always`, 64 connections
- bare log: the write-ahead log alone, groups of 64

`µs` is what the server's process computed per event.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import click
import psutil
import uvloop

from benchmarks.nats_peer import nats_server, publish_to_nats
from onex_platform.capture.api.client import CaptureClient
from onex_platform.capture.captured_events import Durability
from onex_platform.capture.wal.commit import Kind, LogLimits, WriteAheadLog
from onex_platform.capture.wal.disk import FolderDisk
from onex_platform_tests.support.snapshotter_process import ServerProcess

PAYLOAD = bytes(range(256)) * 4
CONNECTIONS = 64
_IN_FLIGHT = 16
_BATCH = 100
_BATCHING = 16


class Figure(NamedTuple):
    """One run of one contestant."""

    per_second: float
    computed_us: float


async def _unary(target: str, until: float, level: Durability) -> int:
    async def one(number: int) -> int:
        sent = 0
        async with CaptureClient(target) as client:
            while time.perf_counter() < until:
                await client.publish(client.event(f"w{number}", PAYLOAD, durability=level))
                sent += 1
        return sent

    return sum(await asyncio.gather(*map(one, range(CONNECTIONS))))


async def _sessions(target: str, until: float) -> int:
    async def one(number: int) -> int:
        room = asyncio.Semaphore(_IN_FLIGHT)
        sent = 0
        async with CaptureClient(target) as client:

            async def events() -> AsyncIterator[Any]:
                while time.perf_counter() < until:
                    await room.acquire()
                    yield client.event(f"w{number}", PAYLOAD)

            async for result in client.session(events()):
                assert not result.code, result.message
                room.release()
                sent += 1
        return sent

    return sum(await asyncio.gather(*map(one, range(CONNECTIONS))))


async def _batches(target: str, until: float) -> int:
    async def one(number: int) -> int:
        sent = 0
        async with CaptureClient(target) as client:
            while time.perf_counter() < until:
                events = [client.event(f"w{number}", PAYLOAD) for _ in range(_BATCH)]
                sent += len(await client.publish_batch(events))
        return sent

    return sum(await asyncio.gather(*map(one, range(_BATCHING))))


def _bare_log(seconds: float) -> Figure:
    committed = 0

    def count(outcomes: Any) -> None:
        nonlocal committed
        committed += len(outcomes)

    with tempfile.TemporaryDirectory() as folder:
        log = WriteAheadLog(FolderDisk(Path(folder)), LogLimits(min_free_bytes=0), count)
        computed, started = time.process_time(), time.perf_counter()
        while time.perf_counter() < started + seconds:
            for _ in range(CONNECTIONS):
                log.append(Kind.EVENT, PAYLOAD)
            log.commit_waiting()
        taken = time.perf_counter() - started
        used = time.process_time() - computed
        log.stop()
    return Figure(committed / taken, 1e6 * used / committed)


def _measured(pid: int, seconds: float, work: Callable[[float], Awaitable[int]]) -> Figure:
    server = psutil.Process(pid)
    before, started = _computed(server), time.perf_counter()
    sent = uvloop.run(_awaited(work(started + seconds)))
    taken = time.perf_counter() - started
    return Figure(sent / taken, 1e6 * (_computed(server) - before) / sent)


async def _awaited(work: Awaitable[int]) -> int:
    return await work


def _computed(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@click.command()
@click.option("--seconds", default=3.0, show_default=True, help="Length of one run.")
@click.option("--rounds", default=3, show_default=True)
def main(seconds: float, rounds: int) -> None:
    """Print events per second and the ratios that the design promises."""
    figures: dict[str, list[Figure]] = {}
    with tempfile.TemporaryDirectory() as name, nats_server(Path(name) / "nats") as nats:
        folder = Path(name) / "snapshotter"
        sections = {
            "buffer": {"max_events": 50_000},
            "wal": {"segment_bytes": 64 * 1024 * 1024},
        }
        server = ServerProcess(folder, sections)
        target = f"127.0.0.1:{server.ports()[0]}"
        contestants: dict[str, tuple[int, Callable[[float], Awaitable[int]]]] = {
            "buffered": (server.pid, lambda until: _unary(target, until, Durability.BUFFERED)),
            "durable": (server.pid, lambda until: _unary(target, until, Durability.WAL)),
            "session": (server.pid, lambda until: _sessions(target, until)),
            "batches": (server.pid, lambda until: _batches(target, until)),
            "peer": (nats.pid, lambda until: publish_to_nats(nats.address, PAYLOAD, until)),
        }
        for _ in range(rounds):
            for contestant, (pid, work) in contestants.items():
                figure = _measured(pid, seconds, work)
                figures.setdefault(contestant, []).append(figure)
            figures.setdefault("bare log", []).append(_bare_log(seconds / 3))
        server.terminate()
    _show(figures)


def _show(figures: dict[str, list[Figure]]) -> None:
    medians = {
        name: Figure(
            statistics.median(figure.per_second for figure in some),
            statistics.median(figure.computed_us for figure in some),
        )
        for name, some in figures.items()
    }
    for name, figure in medians.items():
        print(f"{name:10} {figure.per_second:10,.0f}/s {figure.computed_us:8.1f} µs")
    for name, rival, goal in (
        ("durable", "buffered", 0.7),
        ("durable", "peer", 1.0),
        ("session", "peer", 3.0),
        ("batches", "peer", 20.0),
    ):
        ratio = medians[name].per_second / medians[rival].per_second
        print(f"{name} / {rival}: {ratio:.2f} (goal {goal:g})")


if __name__ == "__main__":
    main()
