"""Cursors move by compare-and-swap; topics and partitions stand in nobody's way."""

from __future__ import annotations

import pytest

from onex_platform.ingest.offsets import CursorMove, consumer_offsets, move_consumer_cursors
from onex_platform.projections.fold.checkpoint import move_fold_cursor
from onex_platform_tests.support.stored_rows import Store

pytestmark = pytest.mark.servers

DOMAIN = "registration"


def moved(store: Store, *moves: CursorMove, domain: str = DOMAIN) -> bool:
    with store.transaction() as cursor:
        if not move_consumer_cursors(cursor, domain, moves):
            cursor.connection.rollback()
            return False
        return True


def offsets(store: Store, domain: str = DOMAIN) -> dict[tuple[str, int], int]:
    with store.transaction() as cursor:
        return dict(consumer_offsets(cursor, domain))


def test_the_fold_cursor_moves_only_from_where_it_stands(store: Store) -> None:
    with store.transaction() as cursor:
        assert not move_fold_cursor(cursor, DOMAIN, 5, 9)
        assert move_fold_cursor(cursor, DOMAIN, 0, 9)
        assert not move_fold_cursor(cursor, DOMAIN, 0, 9)
        assert move_fold_cursor(cursor, "staging", 0, 3)
    assert (store.position(), store.position("staging"), store.position("new")) == (9, 3, 0)


def test_a_far_topic_and_a_near_one_move_on_their_own(store: Store) -> None:
    assert moved(store, CursorMove("far", 0, None, 10**12), CursorMove("near", 0, None, 3))
    assert moved(store, CursorMove("near", 0, 3, 4))
    assert moved(store, CursorMove("far", 0, 10**12, 10**12 + 1))
    assert offsets(store) == {("far", 0): 10**12 + 1, ("near", 0): 4}


def test_a_topic_that_grew_from_three_to_six_partitions_is_read_on(store: Store) -> None:
    assert moved(store, *(CursorMove("input", n, None, 10) for n in range(3)))
    grown = [CursorMove("input", n, 10 if n < 3 else None, 20) for n in range(6)]
    assert moved(store, *grown)
    assert offsets(store) == {("input", n): 20 for n in range(6)}


@pytest.mark.parametrize(
    "wrong",
    [
        CursorMove("input", 1, 9, 20),
        CursorMove("input", 1, None, 20),
        CursorMove("input", 2, 0, 20),
    ],
    ids=["elsewhere", "not new", "never read"],
)
def test_one_cursor_that_is_elsewhere_stops_them_all(store: Store, wrong: CursorMove) -> None:
    assert moved(store, CursorMove("input", 0, None, 10), CursorMove("input", 1, None, 10))
    assert not moved(store, CursorMove("input", 0, 10, 20), wrong)
    assert offsets(store) == {("input", 0): 10, ("input", 1): 10}


def test_the_same_partition_in_two_domains_has_two_cursors(store: Store) -> None:
    assert moved(store, CursorMove("input", 0, None, 10))
    assert moved(store, CursorMove("input", 0, None, 7), domain="staging")
    assert (offsets(store), offsets(store, "staging")) == ({("input", 0): 10}, {("input", 0): 7})


def test_a_cursor_never_moves_back() -> None:
    with pytest.raises(ValueError, match="backwards"):
        CursorMove("input", 0, 10, 9)
