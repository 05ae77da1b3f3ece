"""Who is the canary: one node, known by tenant and id together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onex_platform.domain.envelope import EnumParkReason
from onex_platform.domain.events import EnumEventKind, LogEvent
from onex_platform.domain.headers import CANARY, is_sample
from onex_platform.domain.identity import (
    CANARY_ID,
    CANARY_NODE,
    CANARY_TENANT,
    identify_admitted,
    identify_node,
)
from onex_platform.domain.intake import Parked, admit
from onex_platform_tests.support.events import RULES, at, record

TENANTS = st.sampled_from(["omnibase", "other", CANARY_TENANT])
IDS = st.one_of(
    st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=20),
    st.uuids().map(str),
    st.sampled_from([CANARY_NODE, str(CANARY_ID), str(CANARY_ID).upper(), f"{{{CANARY_ID}}}"]),
)


@given(TENANTS, IDS)
def test_the_canary_has_its_tenant_and_nobody_else_has_either(tenant: str, node_id: str) -> None:
    plain = identify_node(node_id, tenant)
    allowed = (tenant == CANARY_TENANT) == (plain.entity_id == CANARY_ID)
    if allowed:
        assert identify_admitted(node_id, tenant) == plain
    else:
        with pytest.raises(ValueError, match="are the platform's canary"):
            identify_admitted(node_id, tenant)


@pytest.mark.parametrize(
    ("node_id", "tenant"),
    [("real-node", CANARY_TENANT), (str(CANARY_ID), "omnibase"), (str(CANARY_ID), None)],
)
def test_whoever_claims_to_be_the_canary_is_parked(node_id: str, tenant: str | None) -> None:
    claimed = record(EnumEventKind.NODE_INTROSPECTION, node_id=node_id, envelope={"tenant": tenant})
    found = admit(claimed, RULES, at(1))
    assert isinstance(found, Parked)
    assert found.reason is EnumParkReason.BAD_NODE_ID
    assert "canary" in found.detail


def test_the_canary_enters_the_log_as_any_node_does() -> None:
    said = record(
        EnumEventKind.NODE_INTROSPECTION, node_id=CANARY_NODE, envelope={"tenant": CANARY_TENANT}
    )
    found = admit(said, RULES, at(1))
    assert isinstance(found, LogEvent)
    assert found.entity.entity_id == CANARY_ID


def test_a_sample_is_known_by_its_header() -> None:
    assert is_sample([("x-tenant", b"a"), (CANARY, b"1")])
    assert not is_sample([("x-tenant", b"a")])
    assert not is_sample(None)
