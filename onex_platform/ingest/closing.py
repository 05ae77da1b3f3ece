"""Closing a stretch of time: everything appended before an instant is taken into the log."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from onex_platform.ingest.archive import PageArchive
from onex_platform.ingest.cuts.committed_cuts import RivalCutError
from onex_platform.ingest.cuts.consistent_cut import whole_tick

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def close_before(spark: SparkSession, archive: PageArchive, instant: datetime) -> int:
    """Take cuts until the log is closed up to `instant`; how many this call took.

    What is closed already is not read again, so closing the same time twice changes nothing. A
    rival that took a cut first has done a part of the work.
    """
    instant = whole_tick(instant)
    cuts = 0
    while archive.cuts.head() < instant:
        try:
            taken = archive.take_cut(spark, datetime.now(UTC), until=instant)
        except RivalCutError:
            continue
        if taken is None:  # the settling time is not over
            time.sleep(archive.settings.pipeline.poll_seconds)
        else:
            cuts += 1
    return cuts
