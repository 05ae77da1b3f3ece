"""Profiles of what Spark's tasks do in the herd, summed over all of them."""

from __future__ import annotations

import cProfile
import pstats
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import uuid4

from onex_platform.engines.spark.tasks import ArrowTask
from onex_platform.ingest.cuts import cut_job
from onex_platform.projections.fold import reducer

# What makes the tasks, by what they do.
_MAKERS = {
    "admit": (cut_job, "_admitter"),
    "write": (cut_job, "_bucket_writer"),
    "small cut": (cut_job, "_single_writer"),
    "fold": (reducer, "_folder"),
}
_SHOWN = 35


class Profiler:
    """The profiles in a folder; without one there are none."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def clear(self) -> None:
        for step in _MAKERS:
            for file in self._files(step):
                file.unlink()

    def show(self) -> None:
        for step in _MAKERS:
            files = self._files(step)
            if files:
                print(f"--- {step}: {len(files)} tasks", flush=True)
                together = pstats.Stats(*map(str, files))
                together.sort_stats("tottime").print_stats(_SHOWN)

    def _files(self, step: str) -> list[Path]:
        return [] if self._folder is None else list(self._folder.glob(f"{step}.*.pstats"))


@contextmanager
def profiled(folder: Path | None) -> Iterator[Profiler]:
    """Let every task of the block leave its profile in the folder, if there is one."""
    with ExitStack() as patches:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            for step, (module, name) in _MAKERS.items():
                make = _profiling(getattr(module, name), str(folder / step))
                patches.enter_context(mock.patch.object(module, name, make))
        yield Profiler(folder)


def _profiling(make: Callable[..., ArrowTask], prefix: str) -> Callable[..., ArrowTask]:
    def profiling(*arguments: Any) -> ArrowTask:
        task = make(*arguments)

        def measured(batches: Iterable[Any]) -> Iterator[Any]:
            profile = cProfile.Profile()
            try:
                yield from profile.runcall(lambda: list(task(batches)))
            finally:
                profile.dump_stats(f"{prefix}.{uuid4().hex}.pstats")

        return measured

    return profiling
