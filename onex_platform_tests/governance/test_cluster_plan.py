"""The difference between two states, without a cluster."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest

from onex_platform.engines.kafka.access import Right
from onex_platform.engines.kafka.topic_admin import TopicLayout
from onex_platform.governance.cluster_plan import EnumDanger, Plan, ended_topics, make_plan
from onex_platform.governance.state import ClusterState, Subject, desired_state, rights_of
from onex_platform.topics.catalogue import Catalogue, load_whole_catalogue
from onex_platform.topics.policy import load_policy
from onex_platform_tests.support.contracts import event
from onex_platform_tests.support.moving_topics import intent

_TOPIC = TopicLayout("t", 3, 1, {"retention.ms": "1000"})
_RIGHT = Right("User:ours", "topic", "prefixed", "t.", "read")
_STATE = ClusterState(
    {"t": _TOPIC},
    frozenset({_RIGHT}),
    {"ours": {"producer_byte_rate": 1.0}},
    {"t-value": Subject("{}", "JSON", "FORWARD")},
)


def _plan(found: ClusterState, wanted: ClusterState = _STATE, **more: object) -> Plan:
    return make_plan(found, wanted, environment="dev", accounts=["ours"], **more)  # type: ignore[arg-type]


def test_equal_states_need_no_step() -> None:
    assert _plan(_STATE).is_empty
    assert _plan(_STATE).notes == ()


def test_everything_is_made_on_an_empty_cluster_the_mode_before_the_schema() -> None:
    empty = ClusterState({}, frozenset(), {}, {})
    kinds = [step.kind for step in _plan(empty).steps]
    assert kinds == ["create-topic", "grant", "set-quota", "set-mode", "register-subject"]


@pytest.mark.parametrize(
    ("before", "danger"),
    [("999", None), ("1001", EnumDanger.SHORTER_RETENTION), ("-1", EnumDanger.SHORTER_RETENTION)],
)
def test_a_shorter_retention_is_dangerous_and_a_longer_one_is_not(
    before: str, danger: EnumDanger | None
) -> None:
    layout = TopicLayout("t", 3, 1, {"retention.ms": before})
    [step] = _plan(replace(_STATE, topics={"t": layout})).steps
    assert (step.kind, step.before, step.after, step.danger) == (
        "set-topic",
        before,
        "1000",
        danger,
    )


@pytest.mark.parametrize(
    ("setting", "before", "after", "is_dangerous"),
    [
        ("cleanup.policy", "compact", "delete", True),
        ("cleanup.policy", "delete", "compact,delete", True),
        ("cleanup.policy", "compact,delete", "compact", False),
        ("delete.retention.ms", "2000", "1000", True),
        ("delete.retention.ms", "1000", "2000", False),
    ],
)
def test_another_way_to_clean_up_is_dangerous_if_it_drops_what_was_kept(
    setting: str, before: str, after: str, is_dangerous: bool
) -> None:
    found, wanted = (
        replace(_STATE, topics={"t": TopicLayout("t", 1, 1, {setting: value})})
        for value in (before, after)
    )
    [step] = _plan(found, wanted).steps
    assert (step.danger is EnumDanger.SHORTER_RETENTION) == is_dangerous


@pytest.mark.parametrize("partitions", [1, 2, 6])
def test_another_number_of_partitions_is_refused_with_the_way_out(partitions: int) -> None:
    layout = TopicLayout("t", partitions, 1, _TOPIC.config)
    found = _plan(replace(_STATE, topics={"t": layout}))
    assert found.is_empty
    assert "make a new version of the topic" in found.refusals[0]


def test_a_topic_that_is_not_visible_is_never_planned_as_missing() -> None:
    found = _plan(replace(_STATE, topics={}, hidden=frozenset({"t"})))
    assert found.is_empty
    assert "not visible" in found.refusals[0]


def test_a_topic_whose_deprecation_is_over_is_deleted_by_its_own_flag() -> None:
    [step] = _plan(_STATE, ended={"t"}).steps
    assert (step.kind, step.danger) == ("delete-topic", EnumDanger.DELETION)
    assert _plan(replace(_STATE, topics={}), ended={"t"}).is_empty


def test_a_topic_that_moves_ends_by_its_phases_and_not_by_a_date() -> None:
    over = {"notice": "P90D", "since": "2020-01-01"}
    source = event(topic="onex.node.heartbeat.published.v1", deprecation=over)
    target = event(topic="onex.node.heartbeat.published.v2")
    today, policy = date(2026, 1, 1), load_policy()
    contracts = [source, target]
    assert ended_topics(Catalogue(contracts), policy, "dev", today) == {source.topic}
    moving = Catalogue(contracts, {source.topic: intent(target.topic)})
    assert ended_topics(moving, policy, "dev", today) == set()


def test_rights_of_others_are_reported_only() -> None:
    theirs = Right("User:theirs", "topic", "literal", "x", "read")
    everything = Right("User:ours", "topic", "literal", "*", "read")
    found = _plan(replace(_STATE, rights=frozenset({_RIGHT, theirs, everything})))
    assert [(step.kind, step.danger) for step in found.steps] == [("revoke", EnumDanger.REVOCATION)]
    assert found.strangers == (f"right: {theirs}",)
    assert found.dangers == (str(everything),)


def test_quotas_of_others_are_reported_only() -> None:
    theirs = {**(_STATE.quotas or {}), "theirs": {"producer_byte_rate": 1.0}}
    found = _plan(replace(_STATE, quotas=theirs))
    assert found.agrees
    assert found.strangers == ("quota: of User:theirs",)


def test_a_version_behind_the_contract_s_is_refused_and_left() -> None:
    moved_on = Subject("{}", "JSON", "FORWARD", newer=(2, 3))
    found = _plan(replace(_STATE, subjects={"t-value": moved_on}))
    assert found.is_empty
    assert not found.agrees
    assert "(2, 3): delete them in the registry" in found.refusals[0]


def test_what_the_cluster_does_not_have_is_named() -> None:
    bare = ClusterState({"t": _TOPIC})
    found = _plan(bare)
    assert found.is_empty
    assert len(found.notes) == 2


def test_the_fingerprint_is_of_what_the_plan_is_about() -> None:
    other = replace(_STATE, strangers=frozenset({"somebody's"}))
    assert other.fingerprint() == _STATE.fingerprint()
    changed = replace(_STATE, quotas={})
    assert changed.fingerprint() != _STATE.fingerprint()


def test_an_environment_has_the_topics_of_its_policy_under_physical_names() -> None:
    policy, catalogue = load_policy(), load_whole_catalogue()
    dev, prod = (desired_state(catalogue, policy, name, {}) for name in ("dev", "prod"))
    assert "dev.omnibase.platform.aud.dead-letters.v1" in dev.topics
    assert not any(".prism." in name for name in dev.topics)
    assert "prod.omnibase.prism.evt.policy-updated.v1" in prod.topics
    assert len(prod.topics) == len(catalogue)
    tiered = prod.topics["prod.omnibase.prism.evt.policy-updated.v1"].config
    assert tiered["remote.storage.enable"] == "true"


def test_no_right_of_the_policy_is_one_to_everything() -> None:
    policy = load_policy()
    for account in policy.access.accounts:
        for right in rights_of(account, policy, "prod"):
            assert right.name != "*"
            assert right.pattern == "literal" or right.name.endswith((".", "-"))
