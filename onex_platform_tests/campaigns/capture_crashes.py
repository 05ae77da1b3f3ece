"""Crash rounds: the snapshotter is killed at a named effect while writers retry; nothing is lost.

    python -m onex_platform_tests.campaigns.capture_crashes --rounds 200 --seed 0

Each round kills the process (SIGKILL) at `before:` or `after:` one effect, at the n-th time that it
comes there, starts it again, perhaps kills it again, and stops it in order. Then the pages are
read:
each acknowledged event is there exactly once, in its writer's order, byte for byte; one that was
never acknowledged at most once; nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import socket
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from onex_platform.base.errors import OnexError
from onex_platform.capture.api.client import CaptureClient
from onex_platform.capture.flush.dead_letters import DeadLetters
from onex_platform.capture.flush.retrying import Backoff
from onex_platform.capture.read.kafka_relay import TOPIC
from onex_platform_tests.support.plain_slots import (
    FileBroker,
    FolderIndex,
    FolderStorage,
    stored_events,
)
from onex_platform_tests.support.snapshotter_process import RELAYED, ServerProcess

EFFECTS = (
    "wal.roll",
    "wal.write",
    "wal.sync",
    "page.put",
    "index.queue",
    "index.publish",
    "index.unqueue",
    "checkpoint.write",
    "wal.release",
    "relay.send",
    "relay.advance",
    "dead_letter.add",
)
POINTS = [f"{moment}:{name}" for name in EFFECTS for moment in ("before", "after")]
WRITERS = 8
EVENTS = 40
_SEGMENT = 64 * 1024
_ATTRIBUTES = {TOPIC: RELAYED}


@dataclass
class Promises:
    """What writers sent and what they were told, per writer and in order."""

    acknowledged: dict[str, list[tuple[int, bytes]]] = field(default_factory=dict)
    abandoned: set[tuple[str, bytes]] = field(default_factory=set)


async def _write(writer: str, port: int, random: Random, promises: Promises) -> None:
    told = promises.acknowledged.setdefault(writer, [])
    patient = CaptureClient(
        f"127.0.0.1:{port}", timeout_seconds=2.0, backoff=Backoff(0.01, 0.1, 2000)
    )
    hasty = CaptureClient(f"127.0.0.1:{port}", timeout_seconds=0.05, backoff=Backoff(0.01, 0.1, 1))
    async with patient, hasty:
        for number in range(EVENTS):
            payload = b"%s/%d/" % (writer.encode(), number) + random.randbytes(
                random.choice([10, 1000, 6000])
            )
            if random.random() < 0.1:
                promises.abandoned.add((writer, payload))
                try:
                    receipt = await hasty.publish(hasty.event(writer, payload, _ATTRIBUTES))
                except OnexError:
                    continue
                promises.abandoned.discard((writer, payload))
            else:
                receipt = await patient.publish(patient.event(writer, payload, _ATTRIBUTES))
            told.append((receipt.sequence, payload))


class _Server:
    """The process under test; it is started again whenever it is found dead."""

    def __init__(self, folder: Path, port: int, random: Random) -> None:
        self._folder = folder
        self._sections = {
            "buffer": {"max_events": 25, "linger_seconds": 0.2},
            "wal": {"segment_bytes": _SEGMENT},
            "limits": {"max_event_bytes": 8 * 1024, "max_attribute_bytes": 1024},
            "listen": {"port": port},
        }
        self._random = random
        self.deaths = 0

    def start(self, point: str | None) -> None:
        passes = self._random.choice([1, 2, 3, 10])
        self._process = ServerProcess(self._folder, self._sections, point, passes)

    async def keep_alive(self) -> None:
        while True:
            if not self._process.is_alive():
                self.deaths += 1
                again = self._random.choice(POINTS) if self._random.random() < 0.3 else None
                self.start(again)
            await asyncio.sleep(0.02)

    def stop(self) -> int | None:
        """End in order; a point that is reached only now kills it once more."""
        with suppress(EOFError):
            self._process.ports()
        while (code := self._process.terminate()) == -signal.SIGKILL:
            self.deaths += 1
            self.start(None)
            self._process.ports()
        return code


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def play_round(folder: Path, seed: int) -> int:
    """One round; how often the process died."""
    random = Random(seed)
    port = _free_port()
    server = _Server(folder, port, random)
    promises = Promises()
    server.start(POINTS[seed % len(POINTS)])

    async def story() -> None:
        keeper = asyncio.create_task(server.keep_alive())
        writers = [
            _write(f"writer-{number}", port, Random(f"{seed}/{number}"), promises)
            for number in range(WRITERS)
        ]
        await asyncio.gather(*writers)
        keeper.cancel()

    asyncio.run(story())
    code = server.stop()
    assert code == 0, f"seed {seed}: the service ended with {code}"
    judge(folder, promises, seed)
    return server.deaths


def judge(folder: Path, promises: Promises, seed: int) -> None:
    """Compare what writers were promised with what the pages hold and the broker was sent."""
    storage, index = FolderStorage(folder / "pages"), FolderIndex(folder / "index")
    letters = DeadLetters(folder / "wal" / "dead_letters")
    for letter in list(letters.letters()):
        letters.redrive(letter.entry.info.page_id, storage, index)
    events = stored_events(storage, index)
    sent = FileBroker(folder / "broker").sent()
    for writer, told in promises.acknowledged.items():
        there = [(event.sequence, event.payload) for event in events.pop(writer, [])]
        payloads = [payload for _, payload in there]
        assert sent[writer] == payloads, f"seed {seed}: the relay sent something else of {writer}"
        sequences = [sequence for sequence, _ in there]
        assert sequences == list(range(1, len(there) + 1)), f"seed {seed}: {writer} has a gap"
        promised = {payload for _, payload in told}
        extra = [payload for _, payload in there if payload not in promised]
        assert all((writer, payload) in promises.abandoned for payload in extra), (
            f"seed {seed}: {writer} has an event that nobody sent"
        )
        assert len({payload for _, payload in there}) == len(there), f"seed {seed}: one came twice"
        kept = [pair for pair in there if pair[1] not in extra]
        assert kept == told, f"seed {seed}: {writer} was promised something else"
    assert not events, f"seed {seed}: writers that nobody knows"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    deaths = 0
    for seed in range(options.seed, options.seed + options.rounds):
        with tempfile.TemporaryDirectory() as folder:
            deaths += play_round(Path(folder), seed)
        sys.stdout.write(f"seed {seed}: ok, {deaths} deaths so far\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
