"""A registry with the canary answers every question as one without it."""

from __future__ import annotations

from typing import Any

import pytest

from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.identity import CANARY_ID, CANARY_NODE, CANARY_TENANT, REGISTRATION_DOMAIN
from onex_platform.domain.states import EnumNodeType, EnumRegistrationState
from onex_platform.projections import overdue
from onex_platform.projections.reader import PageRequest, RegistrationFilter
from onex_platform.snapshots.read.cache import SnapshotCache
from onex_platform_tests.support.events import DURATIONS, State, at, row
from onex_platform_tests.support.snapshot_records import by_id
from onex_platform_tests.support.snapshot_registry import Registry

pytestmark = pytest.mark.servers

Kind = EnumEventKind
CAPABILITIES = {"protocols": ["http"]}


def answers(registry: Registry) -> dict[str, Any]:
    """Everything that is shown, listed, counted or judged."""
    reader, whole = registry.store.reader, PageRequest(include_deregistered=True)
    with registry.relay() as relay:
        relay.publish_pending()
    cache = SnapshotCache(registry.settings, registry.config.topic)
    try:
        cache.refresh()
        held = {
            "all": by_id(*cache.all()),
            "length": len(cache),
            "entities": cache.status().entities,
            "active": by_id(*cache.get_active_nodes()),
            "type": by_id(*cache.get_by_type("effect")),
            "capability": by_id(*cache.by_capability("http")),
        }
    finally:
        cache.close()
    with registry.store.transaction() as cursor:
        late = {
            kind: overdue.read_page(
                cursor,
                REGISTRATION_DOMAIN,
                kind,
                at(10_000),
                overdue.BEGINNING,
                100,
                DURATIONS.ack,
            )
            for kind in (Kind.ACK_TIMED_OUT, Kind.LIVENESS_EXPIRED)
        }
        some_late = {
            kind: overdue.exists(cursor, REGISTRATION_DOMAIN, kind, at(10_000)) for kind in late
        }
    return {
        **held,
        "late": late,
        "some late": some_late,
        "counts": reader.count_by_state(),
        "rows": [row.entity_id for row in reader.iter_all(include_deregistered=True)],
        "list": reader.find(RegistrationFilter(), page=whole),
        "states": [reader.get_by_state(state) for state in EnumRegistrationState],
        "types": [reader.get_by_type(node_type) for node_type in EnumNodeType],
        "tenant": reader.get_by_tenant(CANARY_TENANT),
        "found by capability": reader.get_by_capability("http"),
        "late acks": reader.get_overdue_ack_registrations(at(10_000)),
        "late beats": reader.get_overdue_liveness_registrations(at(10_000)),
    }


@pytest.mark.parametrize("beside", [0, 4])
def test_nothing_that_users_see_changes_by_the_canary(registry: Registry, beside: int) -> None:
    registry.change(*range(beside), capabilities=CAPABILITIES)
    before = answers(registry)
    canary: dict[str, Any] = {
        "entity_id": CANARY_ID,
        "registered_at": at(0),
        "tenant": CANARY_TENANT,
        "node_name": CANARY_NODE,
        "capabilities": CAPABILITIES,
    }
    for sequence, state in enumerate((State.AWAITING_ACK, State.ACTIVE), 1000):
        seen = row(state, last_applied_sequence=sequence, **canary)
        assert registry.store.projector.persist(seen)
        assert answers(registry) == before
    assert str(CANARY_ID) in {str(state.entity_id) for state in registry.published()}
    assert registry.store.reader.get_entity_state(CANARY_ID) is not None
    gone = row(
        State.ACTIVE,
        last_applied_sequence=2000,
        deregistered_at=at(9),
        liveness_deadline=None,
        **canary,
    )
    assert registry.store.projector.persist(gone)
    assert answers(registry) == before
