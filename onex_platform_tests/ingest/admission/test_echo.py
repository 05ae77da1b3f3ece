"""An echo is a record that the full way would have made a duplicate, and nothing else."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import datetime
from uuid import UUID

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from onex_platform.domain.events import EnumEventKind, LogEvent
from onex_platform.domain.intake import RawRecord, admit, is_ledgered, judge
from onex_platform.domain.reference.log_order import mark_duplicates, number
from onex_platform.domain.reference.plain_fold import fold_batch
from onex_platform.domain.states import EnumOutcome
from onex_platform.ingest.admission.admit import admit_records
from onex_platform.ingest.admission.echo import EchoRun, without_echo
from onex_platform.ingest.event_schema import to_events
from onex_platform_tests.support.arrivals import (
    READ_AT,
    STRICT_TOPICS,
    arrivals,
    as_kafka,
    by_offset,
)
from onex_platform_tests.support.echoes import PublishedFacts, echo_of
from onex_platform_tests.support.events import RULES, START, at, event, number_id, record

Kind = EnumEventKind
# Of the kinds that the registry publishes, those with a topic here.
FACTS = {
    "registered": Kind.NODE_REGISTERED,
    "failures": Kind.REGISTRATION_FAILED,
    "timeouts": Kind.LIVENESS_EXPIRED,
    "requests": Kind.INTROSPECTION_REQUESTED,
}
TOPICS = STRICT_TOPICS | {
    "signed": STRICT_TOPICS["registered"]._replace(
        asked=replace(STRICT_TOPICS["registered"].asked, signed=True)
    )
}
# Their contracts ask for what the platform's own records have.
PLAIN = ("registered", "timeouts")


@st.composite
def facts(draw: st.DrawFn) -> list[tuple[str, LogEvent]]:
    """What was published, and on which topic."""
    published = []
    for place in range(draw(st.integers(0, 8))):
        topic = draw(st.sampled_from(list(FACTS)))
        kind = FACTS[topic]
        more = {"metadata": {'"event_id": "é', "\\"}} if draw(st.booleans()) else {}
        fact = event(
            kind,
            place,
            place,
            event_id=number_id(1000 + place),
            tenant=draw(st.sampled_from(["omnibase", "b"])),
            deadline=at(0) if kind is Kind.LIVENESS_EXPIRED else None,
            **{name: sorted(value) for name, value in more.items()},
        )
        published.append((topic, replace(fact, provenance=None, reported_at=at(place))))
    return published


_CHANGES = (
    *("nothing", "nothing", "nothing", "value", "key", "topic", "signed"),
    *("x-tenant", "x-actor", "x-scope", "headers"),
)


def changed(echo: RawRecord, change: str) -> RawRecord:
    """Somebody else's record that was ours."""
    if change == "nothing":
        return echo
    if change == "value":
        assert echo.value is not None
        return replace(echo, value=echo.value.replace(b'"source"', b' "source"'))
    if change == "key":
        return replace(echo, key=b"another")
    if change == "topic":
        return replace(echo, topic="acks", kind=Kind.NODE_ACK)
    if change == "signed":
        return replace(echo, topic="signed", kind=Kind.NODE_REGISTERED)
    if change == "headers":
        return replace(echo, headers=())
    return replace(echo, headers=[*echo.headers, (change, b"another")])


@st.composite
def readings(draw: st.DrawFn) -> tuple[list[RawRecord], PublishedFacts, list[int]]:
    """Records of any kind, with echoes among them; the ledger, and the places of plain echoes."""
    published = draw(facts())
    foreign = draw(arrivals())
    unknown = [number_id(-2)] if draw(st.booleans()) else []
    ledger = PublishedFacts([fact for _, fact in published if fact.event_id not in unknown])
    returning = [
        (echo_of(fact, topic, 0), draw(st.sampled_from(_CHANGES)))
        for topic, fact in (draw(st.permutations(published)) if published else [])
        for _ in range(draw(st.integers(1, 2)))
    ]
    arrived: list[tuple[RawRecord, str | None]] = [
        *((record, None) for record in foreign),
        *((changed(echo, change), change) for echo, change in returning),
    ]
    arrived = draw(st.permutations(arrived))
    records = [
        replace(raw, offset=offset, asked=TOPICS[raw.topic].asked)
        for offset, (raw, _) in enumerate(arrived)
    ]
    plain = [
        offset
        for offset, (raw, change) in enumerate(arrived)
        if change == "nothing" and raw.topic in PLAIN
    ]
    return records, ledger, plain


@given(
    reading=readings(),
    floor=st.none() | st.integers(-5, 15).map(at),
    most_bytes=st.sampled_from([5000, 5000, 350]),
)
@settings(max_examples=250, deadline=None)
def test_echoes_and_the_rest_come_to_what_the_full_way_comes_to(
    reading: tuple[list[RawRecord], PublishedFacts, list[int]],
    floor: datetime | None,
    most_bytes: int,
) -> None:
    records, ledger, plain = reading
    rules = replace(RULES, ledger_floor=floor, max_event_bytes=most_bytes)
    judged = [judge(raw, rules, READ_AT) for raw in records]
    arrived = pa.Table.from_batches([as_kafka(records)])
    rest, runs = without_echo(arrived, TOPICS, rules, ledger.lookup)
    echoes = {offset for run in runs for offset in range(run.start, run.end)}
    # Each of them would have been admitted, without a word, under an id that is known.
    for offset in echoes:
        outcome = judged[offset].outcome
        assert isinstance(outcome, LogEvent) and is_ledgered(outcome.kind)
        assert outcome.event_id in ledger.ids
        assert judged[offset].findings == ()
    # Nothing that came back as it was published goes the long way.
    assert echoes >= {n for n in plain if isinstance(judged[n].outcome, LogEvent)}
    # What is left is all the others, and comes to what it came to.
    assert set(rest["offset"].to_pylist()) == set(range(len(records))) - echoes
    admitted = admit_records(rest, TOPICS, rules, READ_AT)
    events = sorted(to_events(admitted.events, "registration"), key=by_offset)
    expected = [verdict.outcome for n, verdict in enumerate(judged) if n not in echoes]
    assert repr(events) == repr([item for item in expected if isinstance(item, LogEvent)])
    assert len(admitted.parked) + len(events) + len(echoes) == len(records)
    assert admitted.findings == Counter(
        (raw.topic, finding)
        for raw, verdict in zip(records, judged, strict=True)
        for finding in verdict.findings
    )


@given(facts=facts(), again=st.lists(st.integers(0, 7), max_size=12))
@settings(max_examples=100, deadline=None)
def test_a_log_without_echoes_folds_to_the_same_rows(
    facts: list[tuple[str, LogEvent]], again: list[int]
) -> None:
    begun = [
        record(Kind.NODE_INTROSPECTION, 0, topic="introspections", offset=0),
        record(Kind.NODE_ACK, 20, topic="acks", offset=0),
    ]
    returned = [
        replace(echo_of(fact, topic, n), timestamp=at(n))
        for n, (topic, fact) in enumerate(facts[place] for place in again if place < len(facts))
    ]
    known = {fact.event_id for _, fact in facts}
    full, brief = (_folded([*begun, *more], known) for more in (returned, []))
    assert full[0] == brief[0]
    assert full[1] == brief[1] + Counter({EnumOutcome.DUPLICATE: len(returned)})


def _folded(records: list[RawRecord], known: set[UUID]) -> tuple[object, Counter[EnumOutcome]]:
    """The rows, without their places in the log, and the outcomes."""
    admitted = [admit(raw, RULES, READ_AT) for raw in records]
    entering = [item for item in admitted if isinstance(item, LogEvent)]
    events = list(mark_duplicates(number(entering, START, READ_AT), known))
    fold = fold_batch({}, events)
    rows = [change.row.domain_columns() for change in fold.changes.values()]
    return [row | {"last_applied_sequence": 0} for row in rows], fold.outcomes


def test_runs_of_echoes_are_told_by_their_ends() -> None:
    published = [replace(event(Kind.NODE_REGISTERED, n, n), provenance=None) for n in range(6)]
    strange = record(Kind.NODE_REGISTERED, 3, topic="registered", offset=3)
    echoes = [echo_of(fact, "registered", n) for n, fact in enumerate(published)]
    records = [*echoes[:3], strange, *echoes[4:], replace(echoes[0], partition=1, offset=6)]
    arrived = pa.Table.from_batches([as_kafka(records)])
    rest, runs = without_echo(arrived, TOPICS, RULES, PublishedFacts(published).lookup)
    assert rest["offset"].to_pylist() == [3]
    assert runs == [
        EchoRun("registered", 0, 0, 3),
        EchoRun("registered", 0, 4, 6),
        EchoRun("registered", 1, 6, 7),
    ]


def test_without_a_record_of_ours_nobody_is_asked() -> None:
    arrived = pa.Table.from_batches([as_kafka([record(Kind.NODE_REGISTERED, topic="registered")])])

    def ask(ids: object, floor: object) -> set[bytes]:
        raise AssertionError

    assert without_echo(arrived, TOPICS, RULES, ask) == (arrived, [])
