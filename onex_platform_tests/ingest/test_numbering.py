"""Numbering columns means what numbering events means."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from unittest import mock
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onex_platform.domain.events import LogEvent
from onex_platform.domain.intake import RawRecord, admit
from onex_platform.domain.order import EVENTS_PER_MILLISECOND, POSITION_STRIDE, position_at
from onex_platform.domain.reference.log_order import mark_duplicates, number
from onex_platform.ingest.admission.column_values import INSTANT
from onex_platform.ingest.event_schema import to_events, to_table
from onex_platform.ingest.numbering import enter_log
from onex_platform.log import page_layout
from onex_platform_tests.support.events import RULES, Kind, at, record
from onex_platform_tests.support.histories import READ_AT, records, with_repeats


@pytest.mark.parametrize("wide", [False, True], ids=["plain payloads", "wide payloads"])
@given(data=st.data(), history=records(), closed=st.integers(0, 300))
@settings(max_examples=100, deadline=None)
def test_columns_are_numbered_and_judged_like_events(
    wide: bool, data: st.DataObject, history: list[RawRecord], closed: int
) -> None:
    admitted = [admit(raw, RULES, READ_AT) for raw in data.draw(with_repeats(history))]
    entering = [event for event in admitted if isinstance(event, LogEvent)]
    known = set(data.draw(st.lists(st.sampled_from([e.event_id for e in entering]), max_size=3)))
    end = at(closed + 1 + data.draw(st.integers(0, 300)))
    expected = list(mark_duplicates(number(entering, at(closed), end), known))

    def lookup(ids: list[bytes]) -> set[bytes]:
        return {item for item in ids if UUID(bytes=item) in known}

    shuffled = data.draw(st.permutations(entering))
    with mock.patch.object(page_layout, "_WIDE_BYTES", 0 if wide else 2**30):
        numbered = enter_log(to_table(shuffled), at(closed), end, lookup)
    assert pa.types.is_large_string(numbered["payload"].type) == (wide and bool(entering))
    assert list(to_events(numbered, "registration")) == sorted(expected, key=_place)


def _place(event: LogEvent) -> tuple[bytes, int]:
    return event.entity.entity_id.bytes, event.position


def test_an_empty_cut_stays_empty() -> None:
    assert len(enter_log(to_table([]), at(0), at(1), set)) == 0


CROWD = EVENTS_PER_MILLISECOND + 3
TICK = timedelta(milliseconds=1)


def crowd(count: int) -> pa.Table:
    """Heartbeats of one node in one millisecond, and two of it in the next."""
    beat = admit(record(Kind.NODE_HEARTBEAT, 5), RULES, READ_AT)
    assert isinstance(beat, LogEvent)
    beats = pa.concat_tables([to_table([beat])] * (count + 2)).combine_chunks()
    times = pa.array([at(5)] * count + [at(5) + TICK] * 2, INSTANT)
    offsets = pa.array(np.arange(len(beats)))
    for name, values in (("occurred_at", times), ("offset", offsets)):
        place = beats.schema.get_field_index(name)
        beats = beats.set_column(place, beats.schema.field(place), values)
    return beats


@pytest.mark.parametrize(
    ("closed", "instant"),
    [
        (at(5), at(6)),
        (at(5), at(5) + 2 * TICK),
        (at(5) - 7 * TICK, at(5) + 2 * TICK),
        (at(8), at(9)),
        (at(8), at(8) + 2 * TICK),
    ],
    ids=["spills", "fits", "spills back from the end", "late", "late and tight"],
)
def test_a_crowded_millisecond_spills_over(closed: datetime, instant: datetime) -> None:
    numbered = enter_log(crowd(CROWD), closed, instant, lambda _ids: set())
    assert numbered["offset"].to_pylist() == list(range(CROWD + 2)), "in the order of the cut"
    positions = numbered["position"].to_numpy()
    assert (np.diff(positions) >= POSITION_STRIDE).all()
    assert (positions % POSITION_STRIDE == 0).all()
    assert position_at(closed) <= positions[0]
    assert positions[-1] + POSITION_STRIDE <= position_at(instant)


def test_a_crowd_of_events_is_numbered_like_one_of_columns() -> None:
    [beat] = to_events(crowd(0)[:1], "registration")
    assert beat.provenance is not None
    events = [
        replace(
            beat,
            occurred_at=at(5) if n < CROWD else at(5) + TICK,
            provenance=replace(beat.provenance, offset=n),
        )
        for n in range(CROWD + 2)
    ]
    closed, instant = at(5) - 7 * TICK, at(5) + 2 * TICK
    numbered = enter_log(crowd(CROWD), closed, instant, lambda _ids: set())
    expected = [event.position for event in number(events, closed, instant)]
    assert numbered["position"].to_pylist() == expected


def test_a_crowd_moves_nobody_else() -> None:
    other = admit(record(Kind.NODE_HEARTBEAT, 5, node_id="other"), RULES, READ_AT)
    assert isinstance(other, LogEvent)
    everybody = pa.concat_tables([crowd(CROWD), to_table([other])])
    numbered = enter_log(everybody, at(5), at(6), lambda _ids: set())
    positions = dict(
        zip(numbered["node_id"].to_pylist(), numbered["position"].to_pylist(), strict=True)
    )
    assert positions["other"] == position_at(at(5))


def test_more_events_than_the_cut_has_places_are_refused() -> None:
    with pytest.raises(OverflowError, match="than have a place"):
        enter_log(crowd(CROWD), at(5), at(5) + TICK, lambda _ids: set())


def test_what_is_dated_behind_the_cut_stays_in_it() -> None:
    [beat] = to_events(enter_log(crowd(0)[:1], at(3), at(4), lambda _ids: set()), "registration")
    assert beat.position == position_at(at(4)) - POSITION_STRIDE
