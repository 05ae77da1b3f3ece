"""A small cut's records, read by the run itself: to start tasks on Spark takes longer than their
work would.

They look like those of Spark's Kafka source, so whatever becomes of them is the same code. What is
too much to hold beside everything else that a run does, or can't be shown like that, is Spark's.
One thing differs: to our client, the name of a header ends at a NUL.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain
from typing import cast

import pyarrow as pa
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Message
from confluent_kafka import TopicPartition as Place

from onex_platform.domain.headers import Headers
from onex_platform.engines.kafka.clients import (
    KafkaConsumer,
    Positions,
    read_assigned,
    translated,
)
from onex_platform.ingest.cuts.consistent_cut import Cut

MOST_BYTES = 32 * 1024**2

# What Spark's source shows of a record.
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
_TIMESTAMP_TYPES = {TIMESTAMP_CREATE_TIME: 0, TIMESTAMP_LOG_APPEND_TIME: 1}
_NO_TYPE = -1
# Later times, and those before 1970, are no times; in microseconds they would not fit.
_LATEST_MS = 2**63 // 1000 - 1


def read_here(
    consumer: KafkaConsumer, cut: Cut, most_bytes: int = MOST_BYTES
) -> list[pa.RecordBatch] | None:
    """The cut's records; None if they are more than so many bytes, or Python can't read them."""
    ends: Positions = {place: span.end for place, span in cut.ranges.items()}
    messages: list[Message] = []
    size = 0
    if not ends:
        return []
    with translated(consumer.settings, "let us read its topics"):
        consumer.assign([Place(*place, span.start) for place, span in cut.ranges.items()])
    try:
        for message in read_assigned(consumer, ends):
            size += _size_of(message)
            if size > most_bytes:
                return None
            messages.append(message)
        return [to_records(messages)]
    except UnicodeDecodeError:  # the name of a header
        return None
    finally:
        consumer.unassign()


def to_records(messages: Sequence[Message]) -> pa.RecordBatch:
    """Records as Spark's Kafka source shows them."""
    times = [message.timestamp() for message in messages]
    return pa.record_batch(
        [
            pa.array([message.key() for message in messages], pa.binary()),
            pa.array([message.value() for message in messages], pa.binary()),
            pa.array([message.topic() for message in messages], pa.string()),
            pa.array([message.partition() for message in messages], pa.int32()),
            pa.array([message.offset() for message in messages], pa.int64()),
            pa.array([max(-1, min(ms, _LATEST_MS)) * 1000 for _, ms in times], pa.int64()).cast(
                SCHEMA.field("timestamp").type
            ),
            pa.array([_TIMESTAMP_TYPES.get(kind, _NO_TYPE) for kind, _ in times], pa.int32()),
            _headers([_headers_of(message) for message in messages]),
        ],
        schema=SCHEMA,
    )


def _size_of(message: Message) -> int:
    named = sum(len(name) + len(value or b"") for name, value in _headers_of(message))
    return len(message.key() or b"") + len(message) + named


def _headers_of(message: Message) -> Headers:
    return cast("Headers", message.headers() or ())


def _headers(rows: Sequence[Headers]) -> pa.Array:
    """Lists of pairs, put together by their lengths; no header at all is null."""
    flat = list(chain.from_iterable(rows))
    pairs = pa.StructArray.from_arrays(
        [
            pa.array([name for name, _ in flat], pa.string()),
            pa.array([value for _, value in flat], pa.binary()),
        ],
        ["key", "value"],
    )
    lengths = accumulate(map(len, rows), initial=0)
    ends = pa.array(lengths, pa.int32(), size=len(rows) + 1)
    return pa.ListArray.from_arrays(
        ends, pairs, mask=pa.array([not row for row in rows], pa.bool_())
    )
