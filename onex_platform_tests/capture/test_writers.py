"""Sequences are dense, ids are remembered within bounds, a withdrawn admission leaves no hole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onex_platform.capture.api.requests import Publication
from onex_platform.capture.writers import (
    MOST_PRODUCERS,
    ConflictError,
    IdMemory,
    SequenceGapError,
    Writers,
)

_EVENT = Publication("t", "w", b"payload", {"a": "b"})


def _writers(max_count: int = 100, max_age: float = 60.0) -> Writers:
    return Writers(IdMemory(max_age, max_count))


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 8)), max_size=40))
def test_each_id_gets_one_sequence_and_sequences_have_no_gap(asked: list[tuple[int, int]]) -> None:
    writers = _writers()
    first: dict[str, int] = {}
    for writer, number in asked:
        event = _EVENT._replace(writer_id=f"w{writer}", event_id=f"{writer}-{number}")
        admission = writers.admit(event, 0.0)
        assert admission.duplicate == (event.event_id in first)
        assert first.setdefault(event.event_id, admission.sequence) == admission.sequence
    for (_, writer_id), writer in writers.items():
        given_numbers = sorted(n for name, n in first.items() if f"w{name[0]}" == writer_id)
        assert given_numbers == list(range(1, writer.last_sequence + 1))


def test_a_known_id_with_other_bytes_or_attributes_is_a_conflict() -> None:
    writers = _writers()
    writers.admit(_EVENT._replace(event_id="id"), 0.0)
    for other in ({"payload": b"other"}, {"attributes": {"a": "c"}}):
        with pytest.raises(ConflictError, match="event_id 'id'"):
            writers.admit(_EVENT._replace(event_id="id", **other), 0.0)


def test_a_producer_must_not_leave_a_number_out() -> None:
    writers = _writers()
    first = _EVENT._replace(producer_id="p", producer_sequence=1)
    assert not writers.admit(first, 0.0).duplicate
    assert writers.admit(first, 0.0).duplicate
    with pytest.raises(SequenceGapError) as caught:
        writers.admit(first._replace(producer_sequence=3), 0.0)
    assert caught.value.expected == 2


def test_a_withdrawn_admission_is_as_if_it_had_not_been() -> None:
    writers = _writers()
    event = _EVENT._replace(event_id="id", producer_id="p", producer_sequence=1)
    admission = writers.admit(event, 0.0)
    writers.withdraw(event, admission.sequence)
    again = writers.admit(event, 0.0)
    assert (again.sequence, again.duplicate) == (1, False)


def test_ids_are_forgotten_by_age_and_by_count() -> None:
    writers = _writers(max_count=2, max_age=10.0)
    for number in range(3):
        writers.admit(_EVENT._replace(event_id=f"{number}"), float(number))
    writers.ids.prune(3.0)
    assert len(writers.ids) == 2
    writers.ids.prune(12.5)
    assert len(writers.ids) == 0


def test_a_writer_remembers_a_bounded_number_of_producers() -> None:
    writers = _writers(max_count=10_000)
    for number in range(MOST_PRODUCERS + 5):
        writers.admit(_EVENT._replace(producer_id=f"p{number}", producer_sequence=1), 0.0)
    producers = writers["t", "w"].producers
    assert len(producers) == MOST_PRODUCERS
    assert "p0" not in producers
