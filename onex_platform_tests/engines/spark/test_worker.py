"""The daemon of Spark's Python workers spares them what Spark would let every task pay for."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from types import ModuleType

import pyarrow as pa
import pytest
from pyspark import daemon
from pyspark.sql import SparkSession

from onex_platform.engines.spark import worker
from onex_platform.engines.spark.worker import Collector
from onex_platform.pipeline.worker_daemon import USED_BY_TASKS

# What is freed teaches glibc to take as much from its heap the next time.
_ALLOCATE = """
import ctypes, sys
from onex_platform.engines.spark.worker import keep_large_arrays_apart
if sys.argv[1] == "apart":
    keep_large_arrays_apart()
class Info(ctypes.Structure):
    _fields_ = [(f"field_{n}", ctypes.c_size_t) for n in range(10)]
libc = ctypes.CDLL(None)
libc.mallinfo2.restype, libc.malloc.restype = Info, ctypes.c_void_p
libc.malloc.argtypes, libc.free.argtypes = [ctypes.c_size_t], [ctypes.c_void_p]
libc.free(libc.malloc(20_000_000))
before = libc.mallinfo2().field_3
libc.malloc(10_000_000)
print(libc.mallinfo2().field_3 - before)  # mappings of their own
"""


@pytest.mark.parametrize(("how", "mappings"), [("apart", "1"), ("as ever", "0")])
def test_large_arrays_are_kept_apart_once_they_are_many(how: str, mappings: str) -> None:
    said = subprocess.run(
        [sys.executable, "-c", _ALLOCATE, how], capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == mappings


def test_the_module_that_is_named_to_spark_exists() -> None:
    assert import_module(worker.MODULE).serve is worker.serve
    for name in USED_BY_TASKS:
        import_module(name)


def test_sparks_daemon_collects_by_the_name_that_is_replaced() -> None:
    assert vars(daemon)["gc"] is gc
    assert "gc" in daemon.manager.__code__.co_names


def test_what_is_imported_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    collector = Collector()
    try:
        collector.collect()
        frozen = gc.get_freeze_count()
        assert frozen > 0
        kept = [[] for _ in range(1000)]
        collector.collect()
        assert gc.get_freeze_count() <= frozen
        monkeypatch.setitem(sys.modules, "onex_imported_later", ModuleType("onex_imported_later"))
        collector.collect()
        assert gc.get_freeze_count() >= frozen + len(kept)
    finally:
        gc.unfreeze()


def test_workers_keep_the_memory_that_they_will_need_again(spark: SparkSession) -> None:
    def allocator(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"name": [pa.default_memory_pool().backend_name]})

    assert [row.name for row in spark.range(1).mapInArrow(allocator, "name string").collect()] == [
        "system"
    ]
