"""Records that the run reads itself: they look like those of Spark's source, whatever they are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onex_platform.base.settings import Settings
from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.intake import RawRecord
from onex_platform.engines.kafka.clients import end_positions, open_producer
from onex_platform.ingest.admission.admit import dated
from onex_platform.ingest.archive import PageArchive
from onex_platform.ingest.cuts.consistent_cut import Cut, InputPartition, OffsetRange
from onex_platform.ingest.cuts.small_cut import SCHEMA, read_here, to_records
from onex_platform.ingest.inputs import input_topics
from onex_platform.topics.catalogue import load_catalogue
from onex_platform_tests.support.archives import open_archive
from onex_platform_tests.support.arrivals import arrivals, as_kafka
from onex_platform_tests.support.broker import send, sent
from onex_platform_tests.support.folded_logs import log_of
from onex_platform_tests.support.pipeline_runs import a_mixed_morning

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Kind = EnumEventKind
_PATIENCE_SECONDS = 20


class Arrived:
    """A record as librdkafka hands it over."""

    def __init__(self, raw: RawRecord, milliseconds: int) -> None:
        self._raw = raw
        self._stamp = (2 if raw.append_time else 1), milliseconds

    def __getattr__(self, name: str) -> Any:
        return lambda: getattr(self._raw, name)

    def headers(self) -> Any:
        return list(self._raw.headers) or None

    def timestamp(self) -> tuple[int, int]:
        return self._stamp


@given(arrivals())
def test_a_record_looks_as_spark_shows_it(records: list[RawRecord]) -> None:
    messages = [Arrived(raw, round((raw.timestamp or _ZERO).timestamp() * 1000)) for raw in records]
    assert to_records(cast("Any", messages)).to_pylist() == as_kafka(records).to_pylist()


_ZERO = datetime(1970, 1, 1, tzinfo=UTC)


@given(arrivals(), st.sampled_from([-(2**63), -5, -1, 2**53, 2**62, 2**63 - 1]))
def test_a_time_that_is_none_does_not_stop_a_cut(records: list[RawRecord], stamp: int) -> None:
    messages = [Arrived(raw, stamp) for raw in records]
    table = pa.Table.from_batches([to_records(cast("Any", messages))])
    assert dated(table)["timestamp"].null_count == len(records)


@pytest.mark.servers
def test_a_cut_is_the_same_with_spark_and_without(
    spark: SparkSession, pipeline_settings: Settings
) -> None:
    settings = pipeline_settings
    with open_archive(settings) as archive, archive.database.transaction() as cursor:
        cursor.execute(
            'INSERT INTO consumer_cursors SELECT (jsonb_populate_record(c, \'{"domain": "other"}\''
            ")).* FROM consumer_cursors AS c"
        )
    odd = [
        sent(Kind.NODE_HEARTBEAT, "node-1")._replace(key=None),
        sent(Kind.NODE_ACK, "node-1")._replace(value=None),
        sent(Kind.NODE_ACK, "node-2")._replace(headers=[("a", b"1"), ("a", None), ("é", b"\xff")]),
    ]
    named = {
        "transactional.id": uuid4().hex,
        "delivery.timeout.ms": _PATIENCE_SECONDS * 1000,
    }
    with open_producer(settings, **named) as producer:
        producer.init_transactions(_PATIENCE_SECONDS)
        producer.begin_transaction()
        never = sent(Kind.NODE_INTROSPECTION, "never")
        producer.produce(never.topic, never.value, never.key)
        assert producer.flush(_PATIENCE_SECONDS) == 0
        producer.abort_transaction(_PATIENCE_SECONDS)
    assert send(settings, [*a_mixed_morning(5), *odd])
    now = datetime.now(UTC) + timedelta(seconds=1)
    found = []
    for domain, events in (("registration", 0), ("other", 5_000)):
        pages = settings.pages.model_copy(
            update={"driver_cut_events": events, "url": f"{settings.pages.url}-{domain}"}
        )
        own = settings.model_copy(update={"pages": pages})
        with open_archive(own, domain) as archive:
            taken = archive.take_cut(spark, now)
            assert taken is not None
            found.append((taken.account, _content(archive)))
            with archive.database.transaction() as cursor:  # a record is parked once
                cursor.execute("DELETE FROM parked_records")
    assert found[0] == found[1]
    assert found[0][0].parked == 3


def _content(archive: PageArchive) -> tuple[list[str], list[Any]]:
    """The log, and what was parked, but for the name of the domain."""
    events = [repr(event).replace("'other'", "'registration'") for event in log_of(archive)]
    with archive.database.transaction() as cursor:
        parked = cursor.execute(
            'SELECT topic, partition, "offset", kind, reason, detail, record_timestamp,'
            " append_time, legacy, key, value, header_names, header_values FROM parked_records"
            ' WHERE domain = %s ORDER BY topic, partition, "offset"',
            [archive.domain],
        )
        return events, [tuple(row) for row in parked]


@pytest.mark.servers
def test_what_is_too_large_to_hold_is_left_to_spark(pipeline_settings: Settings) -> None:
    settings = pipeline_settings
    topics = input_topics(load_catalogue())
    starts = end_positions(settings, topics)
    send(settings, [sent(Kind.NODE_ACK, "node-1", note="x" * 1000) for _ in range(20)])
    ends = end_positions(settings, topics)
    ranges = {
        InputPartition(*place): OffsetRange(start, ends[place])
        for place, start in starts.items()
        if start < ends[place]
    }
    cut = Cut(_ZERO, datetime.now(UTC), ranges, {}, {})
    with open_archive(settings) as archive:
        consumer = archive.platform.kafka.consumer()
        assert read_here(consumer, cut, most_bytes=10_000) is None
        [batch] = read_here(consumer, cut) or []
        assert (len(batch), batch.schema) == (20, SCHEMA)
        assert consumer.assignment() == []
        assert read_here(consumer, cut._replace(ranges={})) == []
