"""A rebuild puts the rows right that differ from the log, touches no other, and emits nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from onex_platform.domain.order import position_at
from onex_platform.engines.postgres.database import Cursor
from onex_platform.ingest.archive import PageArchive
from onex_platform.log.compaction.compact import sweep
from onex_platform.log.store import page_key
from onex_platform.projections.fold.checkpoint import lock_checkpoint
from onex_platform.projections.fold.refold import DamagedLogError, Scope
from onex_platform.projections.rebuild.proof import live_equals_replay
from onex_platform.projections.rebuild.rebuild import RebuildRefusedError, open_rebuild
from onex_platform.projections.rebuild.side_table import EnumRowVerdict, RebuildLostError
from onex_platform_tests.support.events import at, record
from onex_platform_tests.support.folded_logs import replayed, rows_of
from onex_platform_tests.support.live_registry import (
    INVENTED,
    LIVE_TABLES,
    NODES,
    Kind,
    damage,
    execute,
    go_on,
    joining,
    node,
    physical,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.servers


def test_an_untouched_registry_is_equal_and_not_one_byte_is_written(
    spark: SparkSession, live: PageArchive
) -> None:
    before = physical(live, *LIVE_TABLES)
    with open_rebuild(spark, live.log) as rebuild:
        comparison = rebuild.swap()
    assert (comparison.equal, comparison.changes, comparison.moved_on) == (NODES, 0, 0)
    assert physical(live, *LIVE_TABLES) == before
    assert physical(live, "rebuilds", "rebuilt_registrations") == {
        "rebuilds": [],
        "rebuilt_registrations": [],
    }


def test_a_rebuild_puts_right_what_differs_and_emits_nothing(
    spark: SparkSession, live: PageArchive
) -> None:
    expected = replayed(live)
    versions = {key.entity_id: row.row_version for key, row in rows_of(live).items()}
    damage(live)
    outbox = physical(live, "outbox", "fact_inbox", "event_ledger")
    started = datetime.now(UTC)
    with open_rebuild(spark, live.log) as rebuild:
        shown = rebuild.compare()
        swapped = rebuild.swap(at_most=shown.changes)
    counts = (shown.equal, shown.differing, shown.missing, shown.extra)
    assert counts == (NODES - 3, 2, 1, 1)
    assert swapped == shown
    by_node = {difference.entity_id: difference for difference in shown.differences}
    assert by_node[node(1)].columns == {"node_version": ("wrong", None)}
    assert list(by_node[node(2)].columns) == ["last_heartbeat_at"]
    assert by_node[node(3)].verdict is EnumRowVerdict.MISSING
    assert by_node[INVENTED].verdict is EnumRowVerdict.EXTRA

    after = rows_of(live)
    assert {key: row.domain_columns() for key, row in after.items()} == {
        key: row.domain_columns() for key, row in expected.items()
    }
    assert physical(live, "outbox", "fact_inbox", "event_ledger") == outbox
    now = {key.entity_id: row.row_version for key, row in after.items()}
    assert now[node(1)] == 41
    assert now[node(2)] == versions[node(2)] + 1
    # Of a lost row nobody knows the version; whatever it was, it is exceeded.
    assert now[node(3)] >= started.timestamp() * 1000 // 1
    untouched = set(now) - {node(1), node(2), node(3)}
    assert {n: now[n] for n in untouched} == {n: versions[n] for n in untouched}


def test_events_that_arrive_meanwhile_are_caught_up_with(
    spark: SparkSession, live: PageArchive
) -> None:
    with open_rebuild(spark, live.log) as rebuild:
        damage(live)
        again = record(Kind.NODE_INTROSPECTION, 110, offset=950, node_id="node-1", node_version="2")
        go_on(spark, live, 200, [*joining(50, 120, 1000), again])
        early = rebuild.compare()
        assert early.moved_on == 2  # node-1 and the new one; the others are judged already
        assert (early.differing, early.missing, early.extra) == (1, 1, 1)
        swapped = rebuild.swap()
        assert swapped.moved_on == 0
        assert swapped.position == position_at(at(200))
    assert {key: row.domain_columns() for key, row in rows_of(live).items()} == {
        key: row.domain_columns() for key, row in replayed(live).items()
    }
    assert len(rows_of(live)) == NODES + 1


def test_events_that_arrive_before_the_turn_is_taken_are_caught_up_with_under_it(
    spark: SparkSession, live: PageArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lock_checkpoint_late(cursor: Cursor, domain: str) -> None:
        beat = record(Kind.NODE_HEARTBEAT, 150, offset=960, node_id="node-1")
        go_on(spark, live, 200, [beat, *joining(50, 120, 1000)])
        lock_checkpoint(cursor, domain)

    damage(live)
    with open_rebuild(spark, live.log) as rebuild:
        monkeypatch.setattr(
            "onex_platform.projections.rebuild.rebuild.lock_checkpoint", lock_checkpoint_late
        )
        swapped = rebuild.swap()
    assert (swapped.moved_on, swapped.changes, swapped.equal) == (0, 4, NODES - 2)
    # The beat moved node-1 on, but did not put its version right: only the swap does.
    assert {key: row.domain_columns() for key, row in rows_of(live).items()} == {
        key: row.domain_columns() for key, row in replayed(live).items()
    }


def test_one_node_is_rebuilt_and_no_other(spark: SparkSession, live: PageArchive) -> None:
    damage(live)
    with open_rebuild(spark, live.log, Scope(nodes=frozenset({node(1)}))) as rebuild:
        assert rebuild.swap().changes == 1
    assert live_equals_replay(spark, live.log).comparison.changes == 3
    with open_rebuild(spark, live.log, Scope(nodes=frozenset({INVENTED}))) as rebuild:
        swapped = rebuild.swap()
    assert (swapped.extra, swapped.changes) == (1, 1)
    assert live_equals_replay(spark, live.log).comparison.changes == 2


def test_a_node_that_joins_after_its_invented_row_was_removed_is_newer_than_that_row(
    spark: SparkSession, live: PageArchive
) -> None:
    def invent(version: int) -> None:
        execute(
            live,
            "INSERT INTO registration_projections SELECT (jsonb_populate_record(p,"
            " jsonb_build_object('entity_id', %s::text, 'row_version', %s::bigint))).*"
            " FROM registration_projections AS p WHERE entity_id = %s",
            str(node(50)),
            version,
            node(4),
        )

    for version in (57, 9):
        invent(version)
        with open_rebuild(spark, live.log) as rebuild:
            assert rebuild.swap().extra == 1
    go_on(spark, live, 200, joining(50, 120, 1000))
    versions = {key.entity_id: row.row_version for key, row in rows_of(live).items()}
    # The sweep may have buried version 57 by a tombstone of version 58.
    assert versions[node(50)] > 58
    assert max(versions[n] for n in versions.keys() - {node(50)}) < 57


def test_a_window_rebuilds_the_nodes_that_its_events_touched(
    spark: SparkSession, live: PageArchive
) -> None:
    damage(live)
    window = position_at(at(2)), position_at(at(4))  # node-0 beats, node-1 acknowledges, …
    with open_rebuild(spark, live.log, Scope(window=window)) as rebuild:
        swapped = rebuild.swap()
    assert (swapped.equal, swapped.differing, swapped.missing) == (1, 2, 1)
    left = live_equals_replay(spark, live.log).comparison
    assert (left.differing, left.missing, left.extra) == (0, 0, 1)


def test_a_lost_table_comes_back_from_the_log(spark: SparkSession, live: PageArchive) -> None:
    expected = replayed(live)
    execute(live, "TRUNCATE registration_projections, registration_liveness")
    with open_rebuild(spark, live.log) as rebuild:
        assert rebuild.swap().missing == NODES
    assert {key: row.domain_columns() for key, row in rows_of(live).items()} == {
        key: row.domain_columns() for key, row in expected.items()
    }


def test_nothing_is_swapped_behind_a_damaged_page(spark: SparkSession, live: PageArchive) -> None:
    damage(live)
    before = physical(live, *LIVE_TABLES)
    page = next(iter(live.log.table.pages()))
    live.log.store.delete(page.key)
    with pytest.raises(DamagedLogError, match=page.key), open_rebuild(spark, live.log):
        pass
    assert physical(live, *LIVE_TABLES, "rebuilds") == {**before, "rebuilds": []}


def test_nothing_is_swapped_if_the_index_has_lost_a_page(
    spark: SparkSession, live: PageArchive
) -> None:
    before = physical(live, *LIVE_TABLES)
    page = next(iter(live.log.table.pages()))
    execute(live, "DELETE FROM pages WHERE page_id = %s", page.metadata.page_id)
    with open_rebuild(spark, live.log) as rebuild, pytest.raises(RebuildRefusedError):
        rebuild.swap()
    assert physical(live, *LIVE_TABLES) == before


def test_nothing_is_swapped_if_the_batches_came_to_something_else(
    spark: SparkSession, live: PageArchive
) -> None:
    damage(live)
    before = physical(live, *LIVE_TABLES)
    execute(live, "UPDATE batch_outcomes SET applied = applied - 1, stale = stale + 1")
    with (
        open_rebuild(spark, live.log) as rebuild,
        pytest.raises(RebuildRefusedError, match="when it was folded live"),
    ):
        rebuild.swap()
    assert physical(live, *LIVE_TABLES) == before


def test_no_more_rows_change_than_were_agreed_to(spark: SparkSession, live: PageArchive) -> None:
    damage(live)
    before = physical(live, *LIVE_TABLES)
    with (
        open_rebuild(spark, live.log) as rebuild,
        pytest.raises(RebuildRefusedError, match="4 rows would change; at most 3"),
    ):
        rebuild.swap(at_most=3)
    assert physical(live, *LIVE_TABLES) == before


def test_nothing_is_swapped_from_a_side_table_that_is_gone(
    spark: SparkSession, live: PageArchive
) -> None:
    before = physical(live, *LIVE_TABLES)
    with open_rebuild(spark, live.log) as rebuild:
        # What a crash of the server does to tables that are not logged.
        execute(live, "TRUNCATE rebuilds, rebuilt_registrations")
        with pytest.raises(RebuildLostError):
            rebuild.swap()
    assert physical(live, *LIVE_TABLES) == before


def test_pages_that_a_running_rebuild_may_read_outlive_the_grace_period(
    spark: SparkSession, live: PageArchive
) -> None:
    def hours_pass(hours: int) -> None:
        execute(live, "UPDATE pages SET replaced_at = replaced_at - %s * interval '1h'", hours)
        execute(live, "UPDATE log_pins SET pinned_at = pinned_at - %s * interval '1h'", hours)

    def replace_pages() -> list[str]:
        """Put a twin in the place of every page, as compaction puts merged ones."""
        pages, twins = list(live.log.table.pages()), []
        for page in pages:
            twin = page.metadata.model_copy(update={"page_id": uuid4()})
            live.log.store.create(page_key(twin), live.log.store.read(page.key))
            twins.append(page._replace(metadata=twin, key=page_key(twin)))
        assert live.log.table.replace([page.metadata.page_id for page in pages], twins)
        return [page.key for page in pages]

    with open_rebuild(spark, live.log) as rebuild:
        hours_pass(1)
        old = replace_pages()
        hours_pass(24)
        assert sweep(live.log).pages == 0
        assert [live.log.store.read(key) for key in old]
        assert rebuild.swap().equal == NODES
        # One that died keeps nothing: nobody holds its lock.
        execute(live, "UPDATE log_pins SET pin_id = %s", uuid4())
        assert sweep(live.log, dry_run=True).pages == len(old)
    assert sweep(live.log).pages == len(old)


def test_the_proof_finds_every_damage_and_changes_nothing(
    spark: SparkSession, live: PageArchive
) -> None:
    proved = live_equals_replay(spark, live.log)
    assert proved.holds
    assert proved.comparison.equal == NODES
    assert proved.events > 3 * NODES
    damage(live)
    before = physical(live, *LIVE_TABLES)
    doubted = live_equals_replay(spark, live.log)
    assert not doubted.holds
    assert doubted.comparison.changes == 4
    assert physical(live, *LIVE_TABLES) == before


def test_a_sample_judges_neighbouring_nodes_on_both_sides(
    spark: SparkSession, live: PageArchive
) -> None:
    ids = sorted(key.entity_id for key in rows_of(live))
    execute(live, "DELETE FROM registration_projections WHERE entity_id = ANY(%s)", ids[::2])
    proved = live_equals_replay(spark, live.log, sample=3).comparison
    assert proved.equal == 3
    assert 2 <= proved.missing <= 4
    assert live_equals_replay(spark, live.log, sample=1000).comparison.missing == len(ids[::2])
