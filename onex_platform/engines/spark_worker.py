"""Spark's Python workers, started without archives on their path.

Spark puts its library (a zip) and its core (a jar) there and lets every task invalidate the import
caches; up to Python 3.11 that reads the directories of both archives again, a tenth of a second
per task. The installed package serves as well. `spark.python.daemon.module` names this module.
"""

from __future__ import annotations

import sys
from zipimport import zipimporter

MODULE = "onex_platform.engines.spark_worker"


def _leave_out_archives() -> None:
    sys.path[:] = [entry for entry in sys.path if not entry.endswith((".zip", ".jar"))]
    for entry, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter):
            del sys.path_importer_cache[entry]


if __name__ == "__main__":
    _leave_out_archives()
    from pyspark.daemon import manager

    manager()  # type: ignore[no-untyped-call]
