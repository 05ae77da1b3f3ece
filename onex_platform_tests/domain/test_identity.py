"""One node is one entity, however its id is spelled; and no other node is."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onex_platform.domain.identity import fact_id, fact_ids, identify_node, plain_id

CANONICAL = "550e8400-e29b-41d4-a716-446655440000"


@pytest.mark.parametrize(
    "spelling",
    [
        CANONICAL,
        CANONICAL.upper(),
        f"{{{CANONICAL}}}",
        f"urn:uuid:{CANONICAL}",
        CANONICAL.replace("-", ""),
    ],
)
def test_spellings_of_one_uuid_are_one_entity_in_every_tenant(spelling: str) -> None:
    for tenant in ("a", "b"):
        identity = identify_node(spelling, tenant)
        assert str(identity.entity_id) == CANONICAL
        assert identity.node_name is None


def test_a_plain_id_is_an_entity_of_its_tenant_and_keeps_its_name() -> None:
    mine, yours = (
        identify_node("postgres-adapter-001", "a"),
        identify_node("postgres-adapter-001", "b"),
    )
    assert mine.entity_id != yours.entity_id
    assert mine.node_name == "postgres-adapter-001"
    # Written down once: these ids are in archives and must never change.
    assert str(mine.entity_id) == "d7507a24-e290-5325-8e99-01094b885a1e"


@pytest.mark.parametrize("bad", ["", "   ", "x" * 257, "a\nb", "a\x00b", "tab\there", "\ud800"])
def test_empty_overlong_and_control_character_ids_are_refused_with_a_reason(bad: str) -> None:
    with pytest.raises(ValueError, match="node_id"):
        identify_node(bad, "a")


def test_the_longest_id_is_accepted() -> None:
    assert identify_node("x" * 256, "a").node_name == "x" * 256


@given(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=20))
def test_ids_of_facts_depend_on_every_part(one: str, other: str) -> None:
    entity = identify_node(CANONICAL, "a").entity_id
    assert (fact_id(entity, 1, "kind", one) == fact_id(entity, 1, "kind", other)) == (one == other)
    assert fact_id(entity, 1, "kind", one) != fact_id(entity, 2, "kind", one)
    assert fact_id(entity, 1, "kind", one) != fact_id(entity, 1, "other", one)


@given(
    st.lists(st.tuples(st.uuids(), st.uuids()), max_size=5),
    st.integers(0, 2**63 - 1),
    st.text(max_size=20),
)
def test_the_ids_of_many_facts_are_those_of_each(
    pairs: list[tuple[UUID, UUID]], epoch: int, kind: str
) -> None:
    entities, causes = [str(one) for one, _ in pairs], [str(cause) for _, cause in pairs]
    assert fact_ids(entities, epoch, kind, causes) == [
        fact_id(one, epoch, kind, str(cause)).bytes for one, cause in pairs
    ]


@given(st.text(min_size=1, max_size=40).filter(str.strip).filter(str.isprintable))
def test_an_id_is_plain_where_it_is_no_uuid(node_id: str) -> None:
    assert plain_id(node_id) == identify_node(node_id, "a").node_name
