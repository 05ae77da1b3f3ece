"""The tables say what the code relies on."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import pytest
from psycopg import errors

from onex_platform.domain.projection import ModelRegistrationProjection
from onex_platform.domain.states import EnumNodeType, EnumRegistrationState
from onex_platform_tests.support.events import State, at, row
from onex_platform_tests.support.stored_rows import Store

pytestmark = pytest.mark.servers

INDEXES = {
    "idx_registration_ack_deadline": "registration_projections",
    "idx_registration_liveness_deadline": "registration_liveness",
    "idx_registration_current_state": "registration_projections",
    "idx_registration_domain_state": "registration_projections",
    "idx_registration_last_event_id": "registration_projections",
    "idx_registration_capabilities": "registration_projections",
    "idx_registration_ack_timeout_scan": "registration_projections",
    "idx_registration_liveness_timeout_scan": "registration_liveness",
}


@pytest.mark.parametrize(
    ("sql_type", "python_type"),
    [
        ("registration_state", EnumRegistrationState),
        ("registration_node_type", EnumNodeType),
    ],
)
def test_sql_and_python_enums_have_the_same_values_in_the_same_order(
    store: Store, sql_type: str, python_type: type[StrEnum]
) -> None:
    labels = store.select(f"SELECT unnest(enum_range(NULL::{sql_type}))::text")
    assert [label for (label,) in labels] == [member.value for member in python_type]


def test_the_eight_indexes_exist_and_only_liveness_ones_are_on_the_narrow_table(
    store: Store,
) -> None:
    found = dict(store.select("SELECT indexname, tablename FROM pg_indexes"))
    assert {name: found.get(name) for name in INDEXES} == INDEXES


def test_the_view_has_the_columns_of_the_model(store: Store) -> None:
    columns = store.select(
        "SELECT column_name FROM information_schema.columns WHERE table_name = 'registrations'"
    )
    assert {name for (name,) in columns} == set(ModelRegistrationProjection.model_fields)


@pytest.mark.parametrize(
    ("rule", "fields"),
    [
        ("ack_deadline_only_while_armed", {"ack_deadline": at(1), "current_state": "rejected"}),
        ("ack_deadline_only_while_armed", {"ack_deadline": at(1), "deregistered_at": at(0)}),
        ("active_means_registered", {"current_state": "active", "ack_deadline": None}),
        ("provenance_is_whole", {"last_applied_topic": "input"}),
        ("epoch", {"epoch": -1}),
        ("tenant", {"tenant": ""}),
    ],
)
def test_a_row_that_the_fold_can_not_produce_is_refused(
    store: Store, rule: str, fields: dict[str, Any]
) -> None:
    possible = row(State.ACCEPTED)
    with pytest.raises(errors.CheckViolation, match=rule):
        store.projector.persist(possible.model_copy(update=fields))
    assert store.projector.persist(possible)


@pytest.mark.parametrize(
    ("rule", "statement"),
    [
        (
            "every_record_has_one_outcome",
            "INSERT INTO batch_outcomes VALUES ('d', 0, 8, 3, 1, 1, 0, 0, 0)",
        ),
        ("positions_rise", "INSERT INTO batch_outcomes VALUES ('d', 8, 8, 0, 0, 0, 0, 0, 0)"),
        (
            "entry_has_what_its_kind_needs",
            "INSERT INTO outbox (entry, domain, entity_id)"
            " VALUES ('snapshot', 'd', gen_random_uuid())",
        ),
        (
            "entry_has_what_its_kind_needs",
            "INSERT INTO outbox (entry, domain, entity_id, row_version, event_kind, event_id,"
            " envelope) VALUES ('event', 'd', gen_random_uuid(), 1, 'k', gen_random_uuid(), '{}')",
        ),
    ],
)
def test_an_account_that_does_not_add_up_is_refused(
    store: Store, rule: str, statement: str
) -> None:
    with pytest.raises(errors.CheckViolation, match=rule), store.transaction() as cursor:
        cursor.execute(statement)
