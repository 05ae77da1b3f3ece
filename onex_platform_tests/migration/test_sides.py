"""Two sides of a move are compared: whatever happened to one of them is named by id."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from onex_platform.migration.event_ids import event_id_of, id_to_add
from onex_platform.migration.handover import Record, begins
from onex_platform.migration.sides import Comparison, Seen, compare, compare_latest

_KEYS = st.sampled_from([b"a", b"b", b"c", None])
_TRAFFIC = st.lists(_KEYS, max_size=12).map(
    lambda keys: [Seen(f"event-{at}", key, 100 + at) for at, key in enumerate(keys)]
)
_ALL = {"since_ms": 0, "until_ms": 1000}


@given(_TRAFFIC)
def test_equal_sides_differ_in_nothing(side: list[Seen]) -> None:
    assert compare(side, side, **_ALL) == Comparison(compared=len(side))


@given(_TRAFFIC.filter(bool), st.data())
def test_what_one_side_lacks_is_named(side: list[Seen], data: st.DataObject) -> None:
    lost = data.draw(st.sampled_from(side))
    rest = [seen for seen in side if seen is not lost]
    assert compare(side, rest, **_ALL).missing_on_target == (lost.event_id,)
    assert compare(rest, side, **_ALL).missing_on_source == (lost.event_id,)
    assert compare(rest, side, **_ALL, both_ways=False) == Comparison(compared=len(rest))


@given(_TRAFFIC.filter(bool), st.data())
def test_what_one_side_has_twice_is_named(side: list[Seen], data: st.DataObject) -> None:
    twice = data.draw(st.sampled_from(side))
    assert compare(side, [*side, twice], **_ALL).doubled == (twice.event_id,)
    assert compare([*side, twice], side, **_ALL).doubled == (twice.event_id,)
    assert compare([*side, twice], [*side, twice], **_ALL).doubled == ()


@given(_TRAFFIC, st.randoms(use_true_random=False))
def test_order_is_judged_by_key_and_by_nothing_else(side: list[Seen], random: object) -> None:
    other = side[:]
    random.shuffle(other)  # type: ignore[attr-defined]
    expected = {
        key
        for key in (b"a", b"b", b"c")
        if [s for s in side if s.key == key] != [s for s in other if s.key == key]
    }
    found = compare(side, other, **_ALL)
    assert {line.partition(":")[0].encode() for line in found.disordered} == expected
    assert (found.missing_on_target, found.doubled) == ((), ())


@given(_TRAFFIC, st.integers(95, 115))
def test_what_is_too_young_is_not_judged(side: list[Seen], until: int) -> None:
    found = compare(side, [], since_ms=0, until_ms=until)
    assert found.missing_on_target == tuple(s.event_id for s in side if s.at_ms < until)


_BYTES = st.one_of(st.none(), st.binary(max_size=6))


@given(_BYTES, _BYTES, _BYTES, _BYTES)
def test_records_without_an_id_are_told_apart_by_their_bytes(
    key: bytes | None, value: bytes | None, other_key: bytes | None, other_value: bytes | None
) -> None:
    same = event_id_of(key, value, []) == event_id_of(other_key, other_value, None)
    assert same == ((key, value) == (other_key, other_value))
    # Lifted on the way, the record keeps the id that it had.
    assert event_id_of(key, b"lifted", id_to_add(key, value, [])) == event_id_of(key, value, [])


def test_an_id_is_taken_from_the_headers_and_then_from_the_envelope() -> None:
    value = b'{"event_id": "inner", "payload": {}}'
    assert event_id_of(b"k", value, []) == "inner"
    assert event_id_of(b"k", value, [("ce_id", b"outer")]) == "outer"
    assert event_id_of(b"k", value, [("ce_id", b"outer"), ("x-event-id", b"own")]) == "own"
    assert event_id_of(b"k", value, [("ce_id", None)]) == "inner"
    assert id_to_add(b"k", b"no json", [("ce_id", b"outer")]) == id_to_add(b"k", value, []) == []


_STATES = st.lists(
    st.builds(
        Seen,
        st.sampled_from(["version 1", "version 2"]),
        st.sampled_from([b"a", b"b"]),
        st.integers(0, 20),
        removes=st.booleans(),
    ),
    max_size=6,
)


@given(_STATES, _STATES)
def test_of_compacted_sides_only_what_stands_last_counts(
    here: list[Seen], there: list[Seen]
) -> None:
    found = compare_latest(here, there, until_ms=10)
    for key in (b"a", b"b"):
        lasts = [next((s for s in reversed(side) if s.key == key), None) for side in (here, there)]
        young = any(last is not None and last.at_ms >= 10 for last in lasts)
        said = [None if last is None or last.removes else last.event_id for last in lasts]
        for named, mine, others in (
            (found.missing_on_target, said[0], said[1]),
            (found.missing_on_source, said[1], said[0]),
        ):
            is_named = any(one.startswith(key.decode()) for one in named)
            assert is_named == (not young and mine is not None and mine != others)


_PLACES = [("target", 0), ("target", 1)]


@given(st.lists(st.tuples(st.sampled_from(_PLACES), st.booleans()), max_size=15))
def test_a_successor_begins_with_the_first_event_that_is_not_done(
    drawn: list[tuple[tuple[str, int], bool]],
) -> None:
    records, done, ends = [], set(), dict.fromkeys(_PLACES, 10)
    for number, (place, is_done) in enumerate(drawn):
        records.append(Record(place, ends[place], str(number)))
        ends[place] += 1
        if is_done:
            done.add(str(number))
    found = begins(records, done, dict.fromkeys(_PLACES, 10), ends)
    for place in _PLACES:
        skipped = [r for r in records if r.place == place and r.offset < found[place]]
        assert all(record.event_id in done for record in skipped)
        at = [r for r in records if r.place == place and r.offset == found[place]]
        assert found[place] == ends[place] if not at else at[0].event_id not in done
