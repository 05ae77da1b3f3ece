"""What was the state then: hours written in any order, and any moment asked for."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from onex_platform.base.errors import ConfigurationError
from onex_platform.domain.events import LogEvent
from onex_platform.domain.identity import EntityKey
from onex_platform.domain.order import position_at
from onex_platform.domain.reference.plain_fold import replay
from onex_platform.domain.states import EnumRegistrationState
from onex_platform.ingest.archive import PageArchive
from onex_platform.projections.fold.refold import DamagedHistoryError
from onex_platform.projections.history.as_of import (
    count_by_state,
    fleet_as_of,
    iter_fleet,
    node_as_of,
)
from onex_platform.projections.history.hourly_states import (
    HOUR,
    NotYetKnownError,
    hour_of,
    nearest_state,
    unwritten_hours,
    write_hour,
)
from onex_platform.projections.history.state_files import THE_BEGINNING, StoredState
from onex_platform.projections.reader import ProjectionReaderRegistration
from onex_platform_tests.support.folded_logs import hours_of, replayed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.servers


def stored(archive: PageArchive) -> dict[datetime, list[str]]:
    """Per hour the checksums of its files."""
    with archive.database.transaction() as cursor:
        rows = cursor.execute("SELECT hour, objects FROM registration_history").fetchall()
    return {row.hour: [file["checksum"] for file in row.objects] for row in rows}


def forget_hours(archive: PageArchive) -> None:
    with archive.database.transaction() as cursor:
        cursor.execute("DELETE FROM registration_history")


def test_hours_are_the_same_whichever_is_written_first(
    spark: SparkSession, archive: PageArchive, log: list[LogEvent]
) -> None:
    hours = hours_of(log)
    assert list(unwritten_hours(archive.log)) == hours
    for hour in hours:
        state = write_hour(spark, archive.log, hour)
        expected = replayed(archive, position_at(hour + HOUR))
        assert state.nodes == len(expected)
    assert list(unwritten_hours(archive.log)) == []
    forwards = stored(archive)
    forget_hours(archive)
    for hour in reversed(hours):
        write_hour(spark, archive.log, hour)
    assert stored(archive) == forwards


def test_an_hour_is_an_earlier_one_and_the_events_between(
    spark: SparkSession, archive: PageArchive, log: list[LogEvent]
) -> None:
    first, *_, last = hours_of(log)
    write_hour(spark, archive.log, first)
    # Without the pages of the first hour, only its stored state can tell what they said.
    for page in archive.log.table.pages(0, position_at(first + HOUR)):
        if page.metadata.max_position < position_at(first + HOUR):
            archive.log.store.delete(page.key)
    write_hour(spark, archive.log, last)
    expected = replay(event for event in log if event.position < position_at(last + HOUR))
    frame = fleet_as_of(spark, archive.log, last + HOUR)
    assert {row.key: row for row in iter_fleet(frame)} == expected


@pytest.mark.parametrize("with_history", [False, True])
def test_any_moment_is_what_the_log_held_before_it(
    spark: SparkSession, archive: PageArchive, log: list[LogEvent], with_history: bool
) -> None:
    if with_history:
        write_hour(spark, archive.log, hours_of(log)[1])
    for number in (0, 400, 1700, len(log) - 1):
        moment = log[number].occurred_at
        expected = replayed(archive, position_at(moment))
        frame = fleet_as_of(spark, archive.log, moment)
        assert {row.key: row for row in iter_fleet(frame)} == expected
        open_rows = [row for row in expected.values() if not row.is_closed()]
        assert count_by_state(frame).total() == len(open_rows)
        for key in {event.entity for event in log[:: len(log) // 7]}:
            assert node_as_of(archive.log, moment, key.entity_id) == expected.get(key)


def test_the_reader_tells_the_past_of_a_node_and_of_the_fleet(
    spark: SparkSession, archive: PageArchive, log: list[LogEvent]
) -> None:
    moment = log[len(log) // 2].occurred_at
    expected = replayed(archive, position_at(moment))
    reader = ProjectionReaderRegistration.of(archive.log)
    for key, row in expected.items():
        open_row = None if row.is_closed() else row
        assert reader.get_entity_state_as_of(key.entity_id, moment) == open_row
        found = reader.get_entity_state_as_of(key.entity_id, moment, include_deregistered=True)
        assert found == row
    fleet = reader.iter_all_as_of(spark, moment, include_deregistered=True)
    assert {row.key: row for row in fleet} == expected
    open_rows = [row for row in expected.values() if not row.is_closed()]
    assert {row.key for row in reader.iter_all_as_of(spark, moment)} == {r.key for r in open_rows}
    counts = reader.count_by_state_as_of(spark, moment)
    assert counts.keys() == set(EnumRegistrationState)
    assert Counter(counts) == Counter(row.current_state for row in open_rows)
    without = ProjectionReaderRegistration(archive.database)
    with pytest.raises(ConfigurationError, match="no archive"):
        without.get_entity_state_as_of(open_rows[0].entity_id, moment)


def test_a_nodes_past_ends_where_its_event_begins(
    archive: PageArchive, log: list[LogEvent]
) -> None:
    joined = next(event for event in log if event.kind.value.startswith("node.introspection"))
    node = joined.entity.entity_id
    assert node_as_of(archive.log, joined.occurred_at, node) is None
    then = node_as_of(archive.log, joined.occurred_at + timedelta(milliseconds=1), node)
    assert then is not None
    assert then.last_applied_event_id == joined.event_id


def test_what_is_not_folded_yet_is_not_told(
    spark: SparkSession, archive: PageArchive, log: list[LogEvent]
) -> None:
    ahead = log[-1].occurred_at + HOUR
    with pytest.raises(NotYetKnownError, match=r"folded up to 2025-01-15T04:5\d"):
        node_as_of(archive.log, ahead, log[0].entity.entity_id)
    with pytest.raises(NotYetKnownError):
        write_hour(spark, archive.log, ahead)


def test_an_unknown_node_and_a_time_before_the_log_have_no_state(
    spark: SparkSession, archive: PageArchive, log: list[LogEvent]
) -> None:
    before = log[0].occurred_at - HOUR
    assert node_as_of(archive.log, before, log[0].entity.entity_id) is None
    assert write_hour(spark, archive.log, before) == StoredState(
        position_at(hour_of(before) + HOUR), 0, ()
    )
    key = EntityKey("registration", log[0].entity.entity_id)
    assert replayed(archive, position_at(before)).get(key) is None


def test_a_damaged_hour_is_named_and_can_be_written_again(
    spark: SparkSession, archive: PageArchive, log: list[LogEvent]
) -> None:
    first, second, *_ = hours_of(log)
    state = write_hour(spark, archive.log, first)
    [file] = state.files
    archive.log.store.delete(file.key)
    archive.log.store.create(file.key, b"something else")
    with pytest.raises(DamagedHistoryError, match=file.key):
        write_hour(spark, archive.log, second)
    assert write_hour(spark, archive.log, first) == state
    write_hour(spark, archive.log, second)
    assert nearest_state(archive.log, state.position) == state
    assert nearest_state(archive.log, state.position - 1) == THE_BEGINNING
