"""Spark's Python workers, started so that a task pays for its work and for little else.

- Spark puts its library (a zip) and its core (a jar) on their path and lets every task invalidate
  the import caches; up to Python 3.11 that reads the directories of both archives again. The
  installed package serves as well, so archives are left out.
- After every task Spark collects garbage, which walks through everything that was ever imported: a
  tenth of a second before the worker can take the next task. What is imported stays for ever, so it
  is frozen: the collector does not look at it again. Within a task it looks rarely.
- Arrow's own allocator gives memory back at once, and takes it again page by page for the next
  batch; the system's keeps what it will need again.
- Workers are forked. Whatever the daemon has imported they need not import, one by one and again
  after each idle minute.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from zipimport import zipimporter

import pyarrow as pa

from onex_platform.base.garbage import collect_rarely

# The daemon to start: it stands where everything is known that runs on Spark.
MODULE = "onex_platform.pipeline.worker_daemon"


_M_MMAP_THRESHOLD = -3  # of glibc's mallopt
_LARGE_BYTES = 4 * 1024**2


class Collector:
    """Stands in for the `gc` module in Spark's daemon."""

    def __init__(self) -> None:
        self._modules = 0

    def collect(self) -> None:
        gc.collect()
        if len(sys.modules) != self._modules:
            self._modules = len(sys.modules)
            gc.freeze()


def serve(modules: Iterable[str]) -> None:
    """Be Spark's daemon of Python workers, which find these modules imported."""
    _leave_out_archives()
    pa.set_memory_pool(pa.system_memory_pool())
    from pyspark import daemon

    for module in modules:
        import_module(module)
    collector = Collector()
    collector.collect()
    collect_rarely()
    daemon.gc = collector  # type: ignore[assignment, attr-defined]
    daemon.manager()  # type: ignore[no-untyped-call]


@cache
def keep_large_arrays_apart() -> None:
    """From now on, give large arrays of this worker memory of their own.

    Among others, those that stay leave gaps where those that went were: of records of a megabyte, a
    task had three times as much memory as it used. Ordinary records don't need it, and are faster
    without.
    """
    if (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:  # not everywhere
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)


def _leave_out_archives() -> None:
    sys.path[:] = [entry for entry in sys.path if not entry.endswith((".zip", ".jar"))]
    for entry, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter):
            del sys.path_importer_cache[entry]
