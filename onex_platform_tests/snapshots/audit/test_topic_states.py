"""What the comparison makes of records: no fault only if every reader finds the row there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from onex_platform.domain.identity import REGISTRATION_DOMAIN
from onex_platform.domain.projection import MOST_VERSION
from onex_platform.snapshots.audit.topic_states import EnumSnapshotFault, Fault, State, TopicStates
from onex_platform.snapshots.read.snapshot_map import Draft, MalformedSnapshotError, SnapshotMap
from onex_platform.snapshots.snapshot_records import VERSION_HEADER, version_in
from onex_platform_tests.support.events import number_id
from onex_platform_tests.support.snapshot_records import snapshot

NODE = number_id(1)
KEY = str(NODE).encode()
OURS = 0  # the partition that our records of the node go to


class Record(NamedTuple):
    """Of version 0: a tombstone without a version, or a value that is no snapshot."""

    partition: int
    state: State


_states = st.builds(State, st.integers(0, 4), st.booleans())
_rows = st.none() | st.builds(State, st.integers(1, 4), st.booleans())
_one_partition = st.lists(st.builds(Record, st.just(OURS), _states), max_size=8)
# Without a version, a tombstone in another partition removes what happens to be read before it.
_versioned = _states.filter(lambda state: state != State(0, closed=True))
_partitions = st.lists(st.builds(Record, st.integers(0, 2), _versioned), max_size=8)


def _folded(records: Iterable[Record]) -> TopicStates:
    states = TopicStates()
    for partition, state in records:
        states.take(NODE, state, partition)
    return states


def _shown(records: Iterable[Record]) -> int | None:
    """The version that a reader of these records has; None if it has nothing."""
    draft = Draft(SnapshotMap(), REGISTRATION_DOMAIN)
    for _, (version, closed) in records:
        if closed:
            draft.bury(KEY, version or None)
        elif version:
            draft.put(KEY, snapshot(1, version).model_dump_json().encode())
        else:
            with pytest.raises(MalformedSnapshotError):
                draft.put(KEY, b"{}")
    found = draft.finished().get(NODE)
    return None if found is None else found.snapshot_version


def _compacted(records: Iterable[Record]) -> Iterable[Record]:
    return {record.partition: record for record in records}.values()


def _repaired(fault: Fault) -> tuple[State | None, State]:
    """The row after the repair that a sweep with `raise_versions` makes, and what it publishes."""
    if fault.row is None:
        assert fault.record is not None
        return None, State(fault.record.version + 1, closed=True)
    row = fault.row
    if fault.is_outdone:
        assert fault.record is not None
        row = row._replace(version=fault.record.version + 1)
    return row, row


def _require_readers_see(row: State | None, records: list[Record]) -> None:
    expected = None if row is None or row.closed else row.version
    assert _shown(records) == expected
    assert _shown(_compacted(records)) == expected
    assert _shown(reversed(list(_compacted(records)))) == expected


@given(_one_partition | _partitions, _rows)
def test_without_a_fault_every_reader_sees_the_row(
    records: list[Record], row: State | None
) -> None:
    assume(_folded(records).fault_of(NODE, row) is None)
    _require_readers_see(row, records)


@given(_one_partition | _partitions, _rows)
@example([Record(OURS, State(1, closed=False))], State(1, closed=True))
@example([Record(1, State(5, closed=True)), Record(1, State(3, closed=False))], None)
def test_one_repair_is_enough_for_every_reader_and_in_any_order_of_partitions(
    records: list[Record], row: State | None
) -> None:
    fault = _folded(records).fault_of(NODE, row)
    if fault is not None:
        row, published = _repaired(fault)
        records = [*records, Record(OURS, published)]
    _require_readers_see(row, records)
    for order in ((0, 1, 2), (2, 1, 0)):
        read = sorted(records, key=lambda record: order[record.partition])
        assert _folded(read).fault_of(NODE, row) is None


def test_a_tombstone_of_the_row_s_version_outdoes_an_open_row_and_not_a_closed_one() -> None:
    tombstoned = _folded([Record(OURS, State(1, closed=True))])
    fault = tombstoned.fault_of(NODE, State(1, closed=False))
    assert fault is not None
    assert (fault.kind, fault.is_outdone) == (EnumSnapshotFault.TOMBSTONED, True)
    alive = _folded([Record(OURS, State(1, closed=False))])
    fault = alive.fault_of(NODE, State(1, closed=True))
    assert fault is not None
    assert (fault.kind, fault.is_outdone) == (EnumSnapshotFault.NOT_TOMBSTONED, False)


def test_another_content_of_the_row_s_version_outdoes_it() -> None:
    row = State(1, closed=False)
    assert Fault(NODE, EnumSnapshotFault.DIFFERENT, row, row).is_outdone


def test_what_stood_before_a_removal_without_a_version_is_forgotten() -> None:
    states = [State(7, closed=False), State(0, closed=True), State(5, closed=False)]
    records = [Record(OURS, state) for state in states]
    _require_readers_see(states[-1], records)
    assert _folded(records).fault_of(NODE, states[-1]) is None


def test_two_contents_of_one_version_equal_no_row() -> None:
    states = TopicStates()
    for digest, expected in ((b"a", True), (b"a", True), (b"b", False), (b"a", False)):
        states.take(NODE, State(1, closed=False), OURS, digest)
        assert states.says(NODE, 1, b"a") is expected
    assert states.says(NODE, 2, b"a") is None
    states.take(NODE, State(2, closed=False), OURS, b"a")
    assert states.says(NODE, 2, b"a") is True


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (b"1", 1),
        (b"042", 42),
        (str(MOST_VERSION).encode(), MOST_VERSION),
        (str(MOST_VERSION + 1).encode(), None),
        (str(2**63 - 1).encode(), None),
        (b"9" * 5000, None),
        (b"0", None),
        (b"-1", None),
        (b"+1", None),
        (b"1_0", None),
        (b" 1", None),
        (b"1.0", None),
        ("٣".encode(), None),
        (b"", None),
        (None, None),
    ],
)
def test_a_version_is_read_from_headers_or_it_is_none(
    text: bytes | None, version: int | None
) -> None:
    assert version_in([("other", b"7"), (VERSION_HEADER, text)]) == version


def test_headers_without_a_version_name_none() -> None:
    assert version_in(None) is None
    assert version_in([]) is None
    assert version_in([("other", b"7")]) is None
