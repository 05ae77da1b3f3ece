"""Failures as events: short enough for a record, and without secrets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from onex_platform.topics.alarms import Alarm, envelope_of, told
from onex_platform_tests.support.events import TENANT, at, number_id


@given(st.integers(7800, 8100))
def test_a_message_of_any_length_is_told_as_far_as_a_record_can_hold_it(length: int) -> None:
    # A secret is recognised by what follows it: cut first, a part of it would pass.
    message = "x" * length + " postgresql://onex:hunter2@db.internal:5432/onex" + "y" * 2_000
    assert told(message) == told(message + "z" * 100)[: len(told(message))]
    assert len(told(message)) <= 8000
    assert "hunter" not in told(message)


def test_an_alarm_of_megabytes_fits_into_a_record() -> None:
    alarm = Alarm(
        correlation_id=number_id(1),
        error="ValueError",
        message="no" * 1_000_000,
        operation="test",
        occurred_at=at(0),
        context={},
    )
    assert len(envelope_of(alarm, TENANT).model_dump_json()) < 10_000
