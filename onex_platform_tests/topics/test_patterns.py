"""Patterns of names, and the access rules that they become."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onex_platform.base.errors import ConfigurationError
from onex_platform.topics.patterns import NamePattern, Resource, resources

_WORLD = {"tenants": ["a", "ab", "omnibase"], "contexts": ["kb", "onex"], "home": "omnibase"}
_WORD = st.sampled_from(["prod", "a", "ab", "kb", "onex", "evt", "x", "v1"])


@pytest.mark.parametrize(
    ("pattern", "name", "is_match"),
    [
        ("prod.*.onex.evt.*.*", "prod.a.onex.evt.contract-created.v1", True),
        ("prod.*.onex.evt.*.*", "dev.a.onex.evt.contract-created.v1", False),
        ("prod.*.onex.evt.*.*", "prod.a.onex.evt.contract-created", False),
        ("onex.node.*", "onex.node.heartbeat.published.v1", True),
        ("onex.node.*", "onex.node", False),
        ("onex.node.*", "onex.nodes.heartbeat.published.v1", False),
        ("*.onex.node.*", "a.onex.node.heartbeat.published.v1", True),
        ("node.heartbeat", "node.heartbeat", True),
        ("node.heartbeat", "node.heartbeat.v1", False),
    ],
)
def test_a_star_is_one_segment_and_at_the_end_the_rest(
    pattern: str, name: str, is_match: bool
) -> None:
    assert NamePattern(pattern).matches(name) is is_match


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("onex.node.*", [("prefixed", "onex.node.")]),
        ("prod.a.*", [("prefixed", "prod.a.")]),
        ("node.heartbeat", [("literal", "node.heartbeat")]),
        (
            "prod.*.onex.evt.*.*",
            [("prefixed", f"prod.{tenant}.onex.evt.") for tenant in _WORLD["tenants"]],
        ),
        (
            "*.onex.node.*",
            [("prefixed", f"{tenant}onex.node.") for tenant in ("a.", "ab.", "")],
        ),
        (
            "prod.a.*.evt.*.*",
            [("prefixed", f"prod.a.{context}.evt.") for context in ("kb", "onex")],
        ),
    ],
)
def test_a_pattern_becomes_rules_that_end_with_a_dot(
    pattern: str, expected: list[tuple[str, str]]
) -> None:
    assert resources(NamePattern(pattern), **_WORLD) == tuple(
        sorted(Resource(*row) for row in expected)  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("pattern", ["*", "*.*", "onex.*.heartbeat.published.v1"])
def test_what_no_rule_can_say_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigurationError, match="can't become an access rule"):
        resources(NamePattern(pattern), **_WORLD)


@pytest.mark.parametrize("pattern", ["", "onex..x", "onex.no*.x"])
def test_a_star_is_a_whole_segment(pattern: str) -> None:
    with pytest.raises(ConfigurationError, match="Pattern"):
        NamePattern(pattern)


@given(st.lists(_WORD | st.just("*"), min_size=2, max_size=6), st.lists(_WORD, max_size=7))
def test_a_rule_covers_only_what_its_pattern_matches(parts: list[str], words: list[str]) -> None:
    pattern, name = NamePattern(".".join(parts)), ".".join(words)
    try:
        rules = resources(pattern, **_WORLD)
    except ConfigurationError:
        return
    if parts[-1] != "*" and any(rule.covers(name) for rule in rules):
        assert pattern.matches(name) or parts[:2] == ["*", "onex"]
    assert all(rule.pattern == "literal" or rule.name.endswith(".") for rule in rules)


def test_the_rules_of_one_tenant_do_not_cover_another_whose_name_begins_alike() -> None:
    [rule] = resources(NamePattern("prod.a.*"), **_WORLD)
    assert rule.covers("prod.a.kb.evt.x.v1")
    assert not rule.covers("prod.ab.kb.evt.x.v1")
