"""Tasks read no more than they may, and cut large batches and packs into small ones."""

from __future__ import annotations

import random
from collections import Counter
from math import inf
from unittest import mock
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings

from onex_platform.domain.events import EnumEventKind, LogEvent
from onex_platform.domain.intake import RawRecord
from onex_platform.ingest.admission.admit import Admitted, admit_records
from onex_platform.ingest.admission.echo import EchoRun
from onex_platform.ingest.cuts import shuffle
from onex_platform.ingest.cuts.shuffle import (
    echoes_of,
    echoes_text,
    findings_of,
    findings_text,
    packs_of,
    unpacked,
    warnings_of,
)
from onex_platform.ingest.cuts.sizing import OverloadError, sliced, watched
from onex_platform.ingest.event_schema import PARKED_SCHEMA, to_events, to_table
from onex_platform.ingest.registration_pages import REGISTRATION_PAGES
from onex_platform_tests.support.arrivals import (
    READ_AT,
    STRICT_TOPICS,
    arrivals,
    as_kafka,
    beats,
    by_offset,
)
from onex_platform_tests.support.events import RULES, event

BUCKETS = 4


def large_events(count: int, size: int = 1000) -> list[LogEvent]:
    """Events whose payloads don't get smaller by compression."""
    return [
        event(
            EnumEventKind.NODE_INTROSPECTION,
            8 * n,
            n,
            node=uuid4(),
            metadata={"noise": random.Random(n).randbytes(size // 2).hex()},
        )
        for n in range(count)
    ]


@given(records=arrivals())
@settings(max_examples=200, deadline=None)
def test_slices_of_a_batch_are_admitted_as_the_batch_is(records: list[RawRecord]) -> None:
    batch = as_kafka(records)
    parts = [
        admit_records(pa.Table.from_batches([part]), STRICT_TOPICS, RULES, READ_AT)
        for part in sliced(batch, batch.nbytes // 3)
    ]
    whole = admit_records(pa.Table.from_batches([batch]), STRICT_TOPICS, RULES, READ_AT)
    events = pa.concat_tables([part.events for part in parts])
    parked = pa.concat_tables([part.parked for part in parts])
    assert len(parts) > 2 or len(records) < 3
    assert sorted(to_events(events, "registration"), key=by_offset) == sorted(
        to_events(whole.events, "registration"), key=by_offset
    )
    assert parked.to_pylist() == whole.parked.to_pylist()
    assert sum((part.findings for part in parts), start=Counter()) == whole.findings


@given(records=arrivals())
@settings(max_examples=50, deadline=None)
def test_what_was_found_reaches_one_of_the_writers(records: list[RawRecord]) -> None:
    admitted = admit_records(
        pa.Table.from_batches([as_kafka(records)]), STRICT_TOPICS, RULES, READ_AT
    )
    admitted = admitted._replace(echoes=[EchoRun("facts", n, n, 2**40) for n in range(3)])
    packs = list(packs_of(admitted, BUCKETS))
    parts = [
        unpacked([pack for pack in packs if pack["bucket"][0].as_py() == bucket], inf)[0]
        for bucket in range(BUCKETS)
    ]
    found = [part.findings for part in parts]
    assert sum(found, start=Counter()) == admitted.findings
    assert findings_of(map(findings_text, found)) == admitted.findings
    assert [run for part in parts for run in part.echoes] == admitted.echoes
    assert echoes_of(echoes_text(part.echoes) for part in parts) == admitted.echoes


def test_ordinary_batches_stay_as_they_are() -> None:
    batch = as_kafka(beats(10))
    assert list(sliced(batch, batch.nbytes)) == [batch]
    assert list(sliced(batch.slice(0, 0), 1)) == []


def test_reading_ends_at_what_a_task_may_read_and_tells_by_how_much_it_is_too_little() -> None:
    batch = as_kafka(beats(10))
    read = watched([batch] * 5, 0, lambda _: (3 * batch.nbytes, 100))
    assert [next(read) for _ in range(3)] == [batch] * 3
    with pytest.raises(OverloadError) as stopped:
        next(read)
    assert stopped.value.load == pytest.approx(4 / 3 * 100 / 40)
    assert len(list(watched([batch] * 5, inf, lambda _: (0, 0)))) == 5


def test_packs_are_small_and_give_back_what_was_packed() -> None:
    admitted = Admitted(to_table(large_events(50)), PARKED_SCHEMA.empty_table(), Counter())
    with mock.patch.object(shuffle, "_PACK_BYTES", 8000):
        packed = list(packs_of(admitted, BUCKETS))
    assert max(len(pack["events"][0].as_py()) for pack in packed) <= 8000
    again, load = unpacked(packed, 4 * admitted.size())
    assert again.events.sort_by("position").equals(admitted.events)
    assert 0.25 <= load < 0.3


def test_packs_of_too_many_bytes_are_only_counted() -> None:
    admitted = Admitted(to_table(large_events(50)), PARKED_SCHEMA.empty_table(), Counter())
    packed = list(packs_of(admitted, BUCKETS))
    again, load = unpacked(packed, admitted.size() / 3)
    assert (len(again.events), len(again.parked)) == (0, 0)
    assert 3 <= load < 3.5


def test_a_reader_that_had_too_much_stops_every_writer() -> None:
    warnings = list(warnings_of(7.5, BUCKETS))
    assert [warning["bucket"][0].as_py() for warning in warnings] == list(range(BUCKETS))
    admitted = Admitted(to_table(large_events(3)), PARKED_SCHEMA.empty_table(), Counter())
    for warning in warnings:
        again, load = unpacked([*packs_of(admitted, BUCKETS), warning], inf)
        assert (len(again.events), load) == (0, 7.5)


@pytest.mark.parametrize(
    ("rows", "most_bytes", "lengths"),
    [(7, inf, [7, 7, 6]), (100, 6000, [4] * 5), (3, 6000, [3] * 6 + [2]), (9, 5, [1] * 20)],
)
def test_stretches_end_by_rows_or_by_bytes(
    rows: int, most_bytes: float, lengths: list[int]
) -> None:
    events = to_table(large_events(20))
    parts = list(REGISTRATION_PAGES.stretches(events, rows, int(min(most_bytes, 2**62))))
    assert [len(part) for part in parts] == lengths
    assert pa.concat_tables(parts).equals(events)


def test_more_payloads_than_a_plain_array_takes_are_cut_into_stretches() -> None:
    row = to_table(large_events(1)).slice(0, 1)
    rows = pa.concat_tables([row] * 40).combine_chunks()
    size = 2**31 // 39
    # Nothing of this takes memory until it is copied.
    texts = pa.LargeStringArray.from_buffers(
        40, pa.py_buffer(np.arange(41) * size), pa.py_buffer(np.zeros(40 * size, np.uint8))
    )
    wide = rows.set_column(rows.schema.get_field_index("payload"), "payload", texts)
    lengths = [
        (len(part), pc.sum(pc.binary_length(part["payload"])).as_py())
        for part in REGISTRATION_PAGES.stretches(wide, 100, 3 * size)
    ]
    assert lengths == [(3, 3 * size)] * 13 + [(1, size)]
