"""Cuts shrink to what tasks can hold, and grow again."""

from __future__ import annotations

import pytest

from onex_platform.ingest.cuts.sizing import CutSizer


def test_a_cut_that_fits_changes_nothing() -> None:
    pace = CutSizer(1000)
    for load in (0.0, 0.5, 1.0):
        pace.learn(1000, load)
        pace.learn(0, load)
        assert pace.most_records == 1000


@pytest.mark.parametrize("load", [1.001, 2, 1e9])
def test_a_cut_that_is_too_large_is_followed_by_a_smaller_one(load: float) -> None:
    pace = CutSizer(1000)
    for records in (1000, 10, 2):
        pace.learn(records, load)
        assert 1 <= pace.most_records < records


def test_nothing_is_less_than_one_record() -> None:
    pace = CutSizer(1000)
    pace.learn(1, 500)
    assert pace.most_records == 1


def test_steady_records_are_taken_without_being_refused_again() -> None:
    pace = CutSizer(1_000_000)
    refused = 0
    for _ in range(20):
        load = pace.most_records / 250
        refused += load > 1
        pace.learn(pace.most_records, load)
    assert refused == 1
    assert 190 <= pace.most_records <= 210


def test_cuts_of_small_records_grow_until_they_are_as_large_as_before() -> None:
    pace = CutSizer(1_000_000)
    pace.learn(1_000_000, 1e7)
    for cuts in range(10):
        if pace.most_records == 1_000_000:
            assert 3 < cuts < 8
            return
        pace.learn(pace.most_records, 1e-6)
    pytest.fail("the cuts stayed small")
