"""Rows as records of the snapshot topic: their headers are what others can parse."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from onex_platform.base.settings import Settings
from onex_platform.domain import headers as h
from onex_platform.domain.projection import MOST_VERSION
from onex_platform.records.wrapping import Wrapper
from onex_platform.snapshots.snapshot_records import to_messages
from onex_platform_tests.support.events import number_id


@given(st.integers(1, MOST_VERSION))
@example(10**16)
@example(MOST_VERSION)
def test_every_version_is_a_span_of_its_row_s_trace(version: int) -> None:
    key = str(number_id(1))
    [(_, _, headers)] = to_messages([(key, str(version), None, None)], Wrapper(Settings()), "none")
    trace = h.parse_traceparent(dict(headers)[h.TRACEPARENT])
    assert trace is not None
    assert (trace.trace_id, int(trace.span_id, 16)) == (number_id(1).hex, version)
