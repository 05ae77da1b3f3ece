"""A cut's records as Spark reads them: exact ranges of offsets, in large steps, over connections
that the next cut uses again."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING
from uuid import uuid4

from onex_platform.base.settings import Settings
from onex_platform.engines.spark.session import kafka_options
from onex_platform.ingest.cuts.consistent_cut import Cut

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# A cut is read from end to end: in the client's small steps, meant for a trickle, that takes longer
# by a third. How many records come out of one fetch stays the client's affair: compressed, they may
# be much larger than it.
_LARGE_FETCHES = {
    "kafka.max.partition.fetch.bytes": str(8 * 1024**2),
    "kafka.receive.buffer.bytes": str(1024**2),
}


def records_on_spark(spark: SparkSession, settings: Settings, cut: Cut) -> DataFrame:
    """The cut's records, as Spark's Kafka source shows them."""
    return spark.read.format("kafka").options(**_source_options(settings, cut)).load()


def _source_options(settings: Settings, cut: Cut) -> dict[str, str]:
    """Exact offset ranges; records that are gone by now fail the cut instead of shrinking it."""
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for place, span in cut.ranges.items():
        starts.setdefault(place.topic, {})[str(place.partition)] = span.start
        ends.setdefault(place.topic, {})[str(place.partition)] = span.end
    options = kafka_options(settings.kafka) | _LARGE_FETCHES
    return options | {
        "assign": json.dumps({topic: sorted(map(int, spans)) for topic, spans in starts.items()}),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
        "includeHeaders": "true",
        "failOnDataLoss": "true",
        # As the clients do that planned the ranges: what a producer took back never happened.
        "kafka.isolation.level": "read_committed",
        # The ranges are there already. At the end of one the client would wait for more, half a
        # second for every partition.
        "kafka.fetch.max.wait.ms": "1",
        # Partitions are assigned, so the group has no members; its name lets the next cut use this
        # one's connections.
        "kafka.group.id": _group_of(tuple(options.items())),
    }


@lru_cache(maxsize=16)
def _group_of(options: tuple[tuple[str, str], ...]) -> str:
    """The name under which Spark keeps connections that were opened with these options, and no
    others: it refuses to use them with different ones."""
    return f"onex-platform-ingest-{uuid4()}"
