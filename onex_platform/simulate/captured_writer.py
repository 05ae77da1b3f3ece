"""A writer whose snapshotter is killed while it writes: what it was promised comes back.

The snapshotter is a real process with its log and its pages in a folder. Its index lives in memory
and dies with it: so the pages themselves have to tell what there is to replay.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import yaml

from onex_platform.base.errors import InfraUnavailableError
from onex_platform.capture.api.client import CaptureClient
from onex_platform.capture.captured_events import CapturedEvent
from onex_platform.capture.config import CaptureConfig, load_config
from onex_platform.capture.flush.keys import DEFAULT_TENANT
from onex_platform.capture.flush.retrying import Backoff
from onex_platform.capture.index.memory import MemoryIndex
from onex_platform.capture.read.event_replay import replay
from onex_platform.capture.read.page_selection import Selection
from onex_platform.capture.read.reconcile import reconcile
from onex_platform.capture.recovering import unflushed_events
from onex_platform.capture.storage import open_storage
from onex_platform.stack.ports import LOOPBACK, free_port

_WRITER = "demo-writer"
_BATCHES, _BATCH = 15, 20
_KILLED_AT = 6  # the batch that is under way when the process dies
_PATIENCE = Backoff(0.05, 0.5, 200)
_STOP_SECONDS = 30
# The process ends when its standard input does: however we end, it does not outlive us.
_SERVE = """
import os, signal, threading

def end_with_the_starter():
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGKILL)

threading.Thread(target=end_with_the_starter, daemon=True).start()
from onex_platform.cli.main import main
main()
"""


class CaptureSight(NamedTuple):
    """How many events there were at each moment, and whether the replay is what was promised."""

    acknowledged_before: int
    recovered: int
    acknowledged: int
    replayed: int
    is_equal: bool


def watch_capture() -> CaptureSight:
    """Write, kill the snapshotter, start it again, write on, stop it, replay."""
    with tempfile.TemporaryDirectory() as folder, SnapshotterProcess(Path(folder)) as snapshotter:
        promised, before, recovered = asyncio.run(_write(snapshotter))
        snapshotter.stop()
        replayed = _replay(snapshotter.config)
    there = [(event.sequence, event.payload) for event in replayed]
    return CaptureSight(before, recovered, len(promised), len(there), there == promised)


async def _write(snapshotter: SnapshotterProcess) -> tuple[list[tuple[int, bytes]], int, int]:
    """What the writer was promised, how much of it before the process died, and how many events
    the dead process left in its log."""
    promised: list[tuple[int, bytes]] = []
    before = recovered = 0
    async with CaptureClient(snapshotter.target, backoff=_PATIENCE) as client:
        for batch in range(_BATCHES):
            payloads = [b"event %d" % (batch * _BATCH + number) for number in range(_BATCH)]
            sending = asyncio.create_task(
                client.publish_batch([client.event(_WRITER, payload) for payload in payloads])
            )
            if batch == _KILLED_AT:
                await asyncio.sleep(0)  # the batch is on its way
                snapshotter.kill()
                before = len(promised)
                recovered = len(unflushed_events(snapshotter.config.wal.folder))
                await asyncio.to_thread(snapshotter.start)
            receipts = await sending
            promised += zip((one.sequence for one in receipts), payloads, strict=True)
    return promised, before, recovered


def _replay(config: CaptureConfig) -> list[CapturedEvent]:
    storage, index, sink = open_storage(config.storage), MemoryIndex(), _Collected()
    reconcile(index, storage, [DEFAULT_TENANT], datetime.now(UTC), grace=timedelta(0), rebuild=True)
    unflushed = unflushed_events(config.wal.folder)
    replay(index, storage, Selection(DEFAULT_TENANT, _WRITER), sink, unflushed=unflushed)
    storage.close()
    return sink.events


class _Collected:
    """A sink that keeps events."""

    def __init__(self) -> None:
        self.events: list[CapturedEvent] = []

    def write(self, events: Sequence[CapturedEvent]) -> None:
        self.events += events

    def position(self) -> int:
        return len(self.events)

    def resume(self, position: int) -> None:
        del self.events[position:]


class SnapshotterProcess:
    """`onex snapshotter serve` as a process of its own; it does not outlive the block."""

    def __init__(self, folder: Path) -> None:
        port = free_port()
        self._file, self._errors = folder / "snapshotter.yaml", folder / "errors"
        self._file.write_text(yaml.safe_dump(_config(folder, port)), encoding="utf-8")
        self.config = load_config(self._file)
        self.target = f"{LOOPBACK}:{port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(self) -> None:
        """Start it; it serves when this returns."""
        command = [sys.executable, "-c", _SERVE, "snapshotter", "serve", "--config"]
        with self._errors.open("w", encoding="utf-8") as errors:
            self._process = subprocess.Popen(
                [*command, str(self._file)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        said = self._process.stdout
        if said is None or not said.readline():
            self.kill()
            reason = self._errors.read_text(encoding="utf-8").strip()
            raise InfraUnavailableError(f"The snapshotter did not start: {reason}")

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def stop(self) -> None:
        """End it in order: what it holds becomes pages."""
        self._process.terminate()
        if code := self._process.wait(_STOP_SECONDS):
            raise InfraUnavailableError(f"The snapshotter ended with exit code {code}.")


def _config(folder: Path, port: int) -> dict[str, object]:
    return {
        "plugin": "snapshotter",
        "instance": "demo",
        "storage": {"backend": "filesystem", "config": {"base_path": str(folder / "pages")}},
        "index": {"backend": "memstore"},
        "wal": {"folder": str(folder / "log"), "segment_bytes": 4 * 1024 * 1024},
        "listen": {"port": port, "http_port": 0},
    }
