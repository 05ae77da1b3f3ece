"""Numbering columns means what numbering events means."""

from __future__ import annotations

from unittest import mock
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onex_platform.domain.events import LogEvent
from onex_platform.domain.intake import RawRecord, admit
from onex_platform.domain.ledger import mark_duplicates
from onex_platform.domain.order import number
from onex_platform.pages import schema
from onex_platform.pages.numbering import enter_log
from onex_platform.pages.schema import to_events, to_table
from onex_platform_tests.domain.builders import RULES, at
from onex_platform_tests.domain.histories import READ_AT, records, with_repeats


@pytest.mark.parametrize("wide", [False, True], ids=["plain payloads", "wide payloads"])
@given(data=st.data(), history=records(), closed=st.integers(0, 300))
@settings(max_examples=100, deadline=None)
def test_columns_are_numbered_and_judged_like_events(
    wide: bool, data: st.DataObject, history: list[RawRecord], closed: int
) -> None:
    admitted = [admit(raw, RULES, READ_AT) for raw in data.draw(with_repeats(history))]
    entering = [event for event in admitted if isinstance(event, LogEvent)]
    known = set(data.draw(st.lists(st.sampled_from([e.event_id for e in entering]), max_size=3)))
    expected = list(mark_duplicates(number(entering, at(closed)), known))

    def lookup(ids: list[bytes]) -> set[bytes]:
        return {item for item in ids if UUID(bytes=item) in known}

    shuffled = data.draw(st.permutations(entering))
    with mock.patch.object(schema, "_WIDE_BYTES", 0 if wide else 2**30):
        numbered = enter_log(to_table(shuffled), at(closed), lookup)
    assert pa.types.is_large_string(numbered["payload"].type) == (wide and bool(entering))
    assert list(to_events(numbered, "registration")) == sorted(expected, key=_place)


def _place(event: LogEvent) -> tuple[bytes, int]:
    return event.entity.entity_id.bytes, event.position


def test_an_empty_cut_stays_empty() -> None:
    assert len(enter_log(to_table([]), at(0), set)) == 0
