"""What work takes: wall and processor seconds of this process and all below it, and memory."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import psutil


@dataclass
class Figures:
    """What one size came to, by contestant: wall and processor seconds, megabytes."""

    seconds: dict[str, float] = field(default_factory=dict)
    computed: dict[str, float] = field(default_factory=dict)
    megabytes: dict[str, float] = field(default_factory=dict)

    def take(self, other: Figures) -> None:
        self.seconds |= other.seconds
        self.computed |= other.computed
        self.megabytes |= other.megabytes

    def warm(
        self,
        name: str,
        rounds: int,
        work: Callable[[], object],
        prepare: Callable[[], object] = lambda: None,
    ) -> None:
        """The medians of the rounds, and their peak of memory."""
        taken, computed = [], []
        with peak_memory() as memory:
            for _ in range(rounds):
                prepare()
                before, started = processor_seconds(), time.perf_counter()
                work()
                taken.append(time.perf_counter() - started)
                computed.append(processor_seconds() - before)
        self.seconds[name] = statistics.median(taken)
        self.computed[name] = statistics.median(computed)
        self.megabytes[name] = memory[0]


def processor_seconds() -> float:
    """What this process, its JVM and its Python workers have computed; hardly changed by what else
    the machine does."""
    total = 0.0
    me = psutil.Process()
    for process in (me, *me.children(recursive=True)):
        with suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system
    return total


@contextmanager
def peak_memory(
    counts: Callable[[psutil.Process], bool] = lambda process: True, every_seconds: float = 0.25
) -> Iterator[list[float]]:
    """The most that this process and all below it held at once, in megabytes, for the block; of
    them those that count."""
    peak, done = [0.0], threading.Event()

    def watch() -> None:
        me = psutil.Process()
        while not done.wait(every_seconds):
            held = 0
            for process in (me, *me.children(recursive=True)):
                with suppress(psutil.Error):
                    if counts(process):
                        held += process.memory_full_info().pss
            peak[0] = max(peak[0], held / 1e6)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peak
    finally:
        done.set()
        watcher.join()
