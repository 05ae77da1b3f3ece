"""Every question to the registry: the right rows, page by page, and by an index."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar
from uuid import UUID

import psycopg
import pytest
from sqlalchemy.event import listen

from onex_platform.base.errors import ConfigurationError
from onex_platform.domain.projection import ModelRegistrationProjection
from onex_platform.domain.states import EnumNodeType
from onex_platform.projections.reader import (
    ModelRegistrationPage,
    PageRequest,
    ProjectionReaderRegistration,
)
from onex_platform_tests.support.events import NODE, TENANT, State, at, number_id, row
from onex_platform_tests.support.stored_rows import Store

pytestmark = pytest.mark.servers

Query = Callable[[ProjectionReaderRegistration, PageRequest], ModelRegistrationPage]
MICROSECOND = timedelta(microseconds=1)


def put(store: Store, state: State, **fields: Any) -> ModelRegistrationProjection:
    if state is State.ACTIVE:
        fields.setdefault("registered_at", at(-10))
    projection = row(state, **fields)
    assert store.projector.persist(projection)
    return projection


def ids(page: ModelRegistrationPage) -> set[UUID]:
    return {item.entity_id for item in page.items}


def test_an_unknown_node_is_none(store: Store) -> None:
    assert store.reader.get_entity_state(NODE) is None
    assert store.reader.get_registration_status(NODE) is None


def test_a_deregistered_node_is_left_out_unless_asked_for(store: Store) -> None:
    put(store, State.ACTIVE, deregistered_at=at(0), liveness_deadline=None)
    reader, everything = store.reader, PageRequest(include_deregistered=True)
    assert reader.get_entity_state(NODE) is None
    assert reader.get_registration_status(NODE) is None
    assert ids(reader.get_by_state(State.ACTIVE)) == set()
    assert sum(reader.count_by_state().values()) == 0
    assert list(reader.iter_all()) == []
    assert reader.get_entity_state(NODE, include_deregistered=True) is not None
    assert ids(reader.get_by_state(State.ACTIVE, page=everything)) == {NODE}
    assert len(list(reader.iter_all(include_deregistered=True))) == 1


def test_nodes_are_found_by_state_type_tenant_and_capability(store: Store) -> None:
    one, two, three = number_id(1), number_id(2), number_id(3)
    put(store, State.ACTIVE, entity_id=one, capabilities={"read": True, "write": False})
    put(
        store,
        State.REJECTED,
        entity_id=two,
        tenant="other",
        node_type=EnumNodeType.REDUCER,
        capabilities={"supported_operations": ["read"]},
    )
    put(
        store, State.ACTIVE, entity_id=three, domain="staging", capabilities={"protocols": ["read"]}
    )
    reader = store.reader
    assert ids(reader.get_by_state(State.ACTIVE)) == {one}
    assert ids(reader.get_by_state(State.ACTIVE, "staging")) == {three}
    assert ids(reader.get_by_type(EnumNodeType.REDUCER)) == {two}
    assert ids(reader.get_by_tenant(TENANT)) == {one}
    assert ids(reader.get_by_capability("read")) == {one, two}
    assert ids(reader.get_by_capability("read", "staging")) == {three}
    assert ids(reader.get_by_capability("write")) == set()
    counts = reader.count_by_state()
    assert (counts[State.ACTIVE], counts[State.REJECTED], counts[State.ACCEPTED]) == (1, 1, 0)
    assert set(counts) == set(State)


def test_many_nodes_are_read_at_once_for_the_fold_closed_ones_included(store: Store) -> None:
    put(store, State.REJECTED, deregistered_at=at(0))
    put(store, State.REJECTED, entity_id=number_id(1), domain="staging")
    found = store.reader.get_many([NODE, number_id(1)])
    assert {key.entity_id for key in found} == {NODE}


@pytest.mark.parametrize(
    ("offset", "overdue"),
    [(-MICROSECOND, False), (timedelta(0), False), (MICROSECOND, True)],
)
def test_a_deadline_is_passed_only_after_it_in_sql_as_in_python(
    store: Store, offset: timedelta, overdue: bool
) -> None:
    waiting = put(store, State.ACCEPTED, ack_deadline=at(30))
    living = put(store, State.ACTIVE, entity_id=number_id(1), liveness_deadline=at(30))
    now, reader = at(30) + offset, store.reader
    assert len(reader.get_overdue_ack_registrations(now).items) == overdue
    assert len(reader.get_overdue_liveness_registrations(now).items) == overdue
    assert waiting.needs_ack_timeout_event(now) is overdue
    assert living.needs_liveness_timeout_event(now) is overdue


def test_a_timeout_that_was_emitted_is_not_overdue_again(store: Store) -> None:
    put(store, State.ACCEPTED, ack_timeout_emitted_at=at(31))
    put(store, State.ACTIVE, entity_id=number_id(1), liveness_timeout_emitted_at=at(61))
    assert store.reader.get_overdue_ack_registrations(at(99)).items == ()
    assert store.reader.get_overdue_liveness_registrations(at(99)).items == ()


def by_state(reader: ProjectionReaderRegistration, page: PageRequest) -> ModelRegistrationPage:
    return reader.get_by_state(State.ACTIVE, page=page)


def overdue(reader: ProjectionReaderRegistration, page: PageRequest) -> ModelRegistrationPage:
    return reader.get_overdue_liveness_registrations(at(1000), page=page)


@pytest.mark.parametrize("query", [by_state, overdue])
def test_pages_follow_each_other_without_gap_or_repetition(store: Store, query: Query) -> None:
    for n in range(7):
        # Equal deadlines, so that the id has to decide between them.
        put(store, State.ACTIVE, entity_id=number_id(n), liveness_deadline=at(n // 3))
    seen: list[UUID] = []
    cursor = None
    for size in (3, 3, 1):
        page = query(store.reader, PageRequest(limit=3, cursor=cursor))
        assert len(page.items) == size
        seen += [item.entity_id for item in page.items]
        cursor = page.next_cursor
        put(store, State.ACTIVE, entity_id=UUID(int=len(seen)), liveness_deadline=at(-1))
    assert cursor is None
    assert set(seen) == {number_id(n) for n in range(7)}
    assert len(seen) == 7


@pytest.mark.parametrize("cursor", ["", "x", "[]", '["x"]', "[1]", '["2026-01-01", "x"]', "{}"])
def test_a_cursor_of_another_list_is_refused(store: Store, cursor: str) -> None:
    with pytest.raises(ConfigurationError, match="next_cursor"):
        by_state(store.reader, PageRequest(cursor=cursor))


@pytest.mark.parametrize("limit", [0, 10_001])
def test_a_page_has_a_sensible_size(store: Store, limit: int) -> None:
    with pytest.raises(ConfigurationError, match=f"limit={limit}"):
        by_state(store.reader, PageRequest(limit=limit))


def test_everything_is_iterated_from_one_snapshot(store: Store) -> None:
    for n in range(20):
        put(store, State.REJECTED, entity_id=number_id(n))
    rows = store.reader.iter_all()
    first = next(rows)
    put(store, State.REJECTED, entity_id=number_id(99))
    assert {first.entity_id, *(row.entity_id for row in rows)} == {number_id(n) for n in range(20)}


# One node in a thousand is of the rare state, tenant, type and capability; one in four is closed.
MANY = """
    INSERT INTO registration_projections
    SELECT
        gen_random_uuid(), 'registration', CASE WHEN n % 1000 = 0 THEN 'rare' ELSE 'common' END,
        (CASE WHEN n % 1000 = 0 THEN 'accepted' ELSE 'active' END)::registration_state, 1,
        (CASE WHEN n % 1000 = 0 THEN 'reducer' ELSE 'effect' END)::registration_node_type,
        NULL, NULL, jsonb_build_object(CASE WHEN n % 1000 = 0 THEN 'rare' ELSE 'common' END, true),
        '{}', jsonb_build_object('build', repeat(md5(n::text), 10)), NULL, NULL,
        CASE WHEN n % 1000 = 0 THEN now() + n * interval '1 s' END, NULL, NULL,
        now(), now(), now(), CASE WHEN n % 4 = 1 THEN now() END, NULL, NULL,
        gen_random_uuid(), n, NULL, NULL, NULL, NULL, 1
    FROM generate_series(1, 20000) AS n;
    INSERT INTO registration_liveness
    SELECT entity_id, domain, now(),
        CASE WHEN current_state = 'active' AND deregistered_at IS NULL
            THEN now() + last_applied_sequence * interval '1 s' END,
        last_applied_sequence
    FROM registration_projections"""


class Recording(psycopg.Cursor[Any]):
    """Keeps what the reader really sends."""

    sent: ClassVar[list[tuple[Any, Any]]] = []

    def execute(self, query: Any, params: Any = None, **options: Any) -> Recording:
        self.sent.append((query, params))
        return super().execute(query, params, **options)


def plan_of(store: Store, ask: Callable[[], object]) -> str:
    ask()
    query, parameters = Recording.sent[-1]
    with store.transaction() as cursor:
        return "\n".join(row[0] for row in cursor.execute(f"EXPLAIN {query}", parameters))


def test_every_query_is_answered_by_an_index(
    another_store: Callable[[], Store], store: Store
) -> None:
    with store.transaction() as cursor:
        cursor.execute(MANY)
    with store.database.engine.connect().execution_options(
        isolation_level="AUTOCOMMIT"
    ) as connection:
        connection.exec_driver_sql("VACUUM ANALYZE")
    soon = store.select("SELECT now() + interval '50 s'")[0][0]
    (entity_id,) = store.select("SELECT entity_id FROM registrations LIMIT 1")[0]
    observed = another_store()
    reader = observed.reader
    listen(
        observed.database.engine,
        "connect",
        lambda connection, _: setattr(connection, "cursor_factory", Recording),
    )
    further = PageRequest(cursor=json.dumps([str(entity_id)]))
    further_overdue = PageRequest(cursor=json.dumps([soon.isoformat(), str(entity_id)]))
    closed_too = PageRequest(include_deregistered=True)
    questions: dict[str, Callable[[], object]] = {
        "registration_projections_pkey": lambda: reader.get_entity_state(entity_id),
        "registration_liveness_pkey": lambda: reader.get_many([entity_id]),
        "idx_registration_domain_state": lambda: reader.get_by_state(State.ACCEPTED, page=further),
        "idx_registration_current_state": lambda: reader.get_by_state(
            State.ACCEPTED, page=closed_too
        ),
        "idx_registration_node_type": lambda: reader.get_by_type(EnumNodeType.REDUCER),
        "idx_registration_tenant": lambda: reader.get_by_tenant("rare"),
        "idx_registration_capabilities": lambda: reader.get_by_capability("rare"),
        "idx_registration_ack_timeout_scan": lambda: reader.get_overdue_ack_registrations(
            soon, page=further_overdue
        ),
        "idx_registration_liveness_timeout_scan": lambda: reader.get_overdue_liveness_registrations(
            soon, page=further_overdue
        ),
    }
    for index, ask in questions.items():
        plan = plan_of(store, ask)
        assert index in plan, plan
        assert "Seq Scan" not in plan, plan
    status = plan_of(store, lambda: reader.get_registration_status(entity_id))
    assert "registration_projections_pkey" in status
    assert "registration_liveness" not in status, "a state needs no look at the other table"
    assert "idx_registration_domain_state" in plan_of(store, reader.count_by_state)
