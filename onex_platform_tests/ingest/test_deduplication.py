"""The ledger forgets, but never takes what it forgot for something new."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from onex_platform.base.errors import ConfigurationError, InfraTimeoutError
from onex_platform.base.settings import Settings
from onex_platform.domain.events import LogEvent
from onex_platform.domain.intake import Parked, admit
from onex_platform.engines.postgres.database import open_engine
from onex_platform.ingest.deduplication import Recall, enter_published, prune, published, recall
from onex_platform.projections.write.staged_batch import Given, give
from onex_platform_tests.support.echoes import PublishedFacts
from onex_platform_tests.support.events import RULES, Kind, at, event, number_id, record
from onex_platform_tests.support.stored_rows import Store, enter_ids

pytestmark = pytest.mark.servers

DOMAIN = "registration"
DAY = timedelta(days=1)


def enter(store: Store, *events: LogEvent) -> None:
    with store.transaction() as cursor:
        enter_ids(cursor, DOMAIN, events)


def asked(store: Store, *numbers: int, domain: str = DOMAIN) -> Recall:
    with store.transaction() as cursor:
        return recall(cursor, domain, [number_id(number) for number in numbers])


def reported(number: int, moment: datetime) -> LogEvent:
    return replace(event(Kind.NODE_INTROSPECTION, number), reported_at=moment)


def forget(store: Store, now: datetime, **limits: int) -> int:
    return prune(
        store.database,
        DOMAIN,
        now=now,
        keep=30 * DAY,
        largest_retention=7 * DAY,
        **limits,
    )


def test_an_id_is_known_once_it_entered_and_only_in_its_domain(store: Store) -> None:
    enter(store, event(Kind.NODE_INTROSPECTION, 1))
    enter(store, event(Kind.NODE_INTROSPECTION, 1), event(Kind.NODE_ACK, 2))
    assert asked(store, 1, 2, 3) == Recall(frozenset({number_id(1), number_id(2)}), None)
    assert asked(store, 1, domain="staging").known == frozenset()


def test_heartbeats_and_duplicates_stay_out(store: Store) -> None:
    enter(store, event(Kind.NODE_HEARTBEAT, 1), event(Kind.NODE_ACK, 2, duplicate=True))
    assert asked(store, 1, 2).known == frozenset()


def test_what_is_published_is_known_by_its_bytes_whether_it_was_known_before_or_not(
    store: Store,
) -> None:
    kinds = {Kind.NODE_ACCEPTED: None, Kind.ACK_TIMED_OUT: at(0), Kind.NODE_REGISTERED: None}
    events = [event(kind, n, n, deadline=end) for n, (kind, end) in enumerate(kinds.items())]
    facts = [replace(fact, provenance=None, reported_at=fact.occurred_at) for fact in events]
    ids = [str(fact.event_id) for fact in facts]
    enter(store, facts[1])  # it came through the inbox
    assert published(store.database, DOMAIN, ids, None) == set()
    with store.transaction() as cursor:
        staged = give(cursor, Given(facts=[*facts, facts[0]]))
        enter_published(cursor, DOMAIN, f"{staged.where}_facts", staged.batch_id)
    assert published(store.database, DOMAIN, ids, None) == PublishedFacts(facts).digests()
    late = PublishedFacts(facts[1:]).digests()
    assert published(store.database, DOMAIN, ids, at(1)) == late
    assert published(store.database, "staging", ids, None) == set()
    assert published(store.database, DOMAIN, ids[1:], None) == late


def test_pruning_forgets_by_the_time_that_the_event_reports(store: Store) -> None:
    now = at(0)
    late_but_fresh = replace(reported(3, now - 29 * DAY), occurred_at=now - 40 * DAY)
    early_but_old = replace(reported(4, now - 31 * DAY), occurred_at=now)
    enter(store, *(reported(n, now - 31 * DAY) for n in (1, 2)), late_but_fresh, early_but_old)
    assert forget(store, now, chunk_rows=2) == 3
    assert asked(store, 1, 2, 3, 4) == Recall(frozenset({number_id(3)}), now - 30 * DAY)


def test_a_repetition_of_a_forgotten_event_is_parked_not_let_in(store: Store) -> None:
    first = record(Kind.NODE_INTROSPECTION, 0)
    admitted = admit(first, RULES, at(1))
    assert isinstance(admitted, LogEvent)
    enter(store, admitted)
    forget(store, at(0) + 31 * DAY)
    memory = asked(store)
    assert admitted.event_id not in memory.known
    again = replace(first, offset=9, timestamp=at(0) + 31 * DAY)
    verdict = admit(again, replace(RULES, ledger_floor=memory.floor), at(0) + 32 * DAY)
    assert isinstance(verdict, Parked)
    assert verdict.reason == "beyond_ledger"


def test_the_floor_is_raised_before_the_first_id_is_forgotten(
    store: Store, store_settings: Settings
) -> None:
    enter(store, reported(1, at(0) - 31 * DAY))
    postgres = store_settings.postgres.model_copy(update={"lock_timeout_seconds": 0.1})
    hasty = open_engine(store_settings.model_copy(update={"postgres": postgres}))
    with store.transaction() as holder:
        holder.execute("SELECT FROM event_ledger FOR UPDATE")
        with pytest.raises(InfraTimeoutError):
            forget(replace(store, database=replace(store.database, engine=hasty)), at(0))
    hasty.dispose()
    assert asked(store, 1) == Recall(frozenset({number_id(1)}), at(0) - 30 * DAY)


def test_the_floor_never_sinks(store: Store) -> None:
    forget(store, at(0))
    forget(store, at(0) - 5 * DAY)
    assert asked(store).floor == at(0) - 30 * DAY


def test_a_memory_shorter_than_an_input_is_refused(store: Store) -> None:
    with pytest.raises(ConfigurationError, match="ONEX_REGISTRATION_LEDGER_DAYS=30"):
        prune(
            store.database,
            DOMAIN,
            now=at(0),
            keep=30 * DAY,
            largest_retention=31 * DAY,
        )
    assert asked(store).floor is None
