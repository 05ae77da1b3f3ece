"""What follows from an event, by a policy that is data."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from onex_platform.domain.decider import EnumRejection, RegistrationPolicy, decide, judge
from onex_platform.domain.events import EnumEventKind, LogEvent
from onex_platform.domain.payloads import ModelNodeCapabilities, RegistrationFailedPayload
from onex_platform.domain.projection import ModelRegistrationProjection
from onex_platform.domain.reference.plain_fold import apply
from onex_platform.domain.states import EnumNodeType, EnumRegistrationState
from onex_platform_tests.support.events import at, event, row

Kind = EnumEventKind
S = EnumRegistrationState
OPEN = RegistrationPolicy()


def decided(
    before: ModelRegistrationProjection | None,
    cause: LogEvent,
    policy: RegistrationPolicy = OPEN,
) -> list[LogEvent]:
    after, _, _ = apply(before, cause)
    return decide(after, cause, policy, at(500))


def kinds(facts: list[LogEvent]) -> list[Kind]:
    return [fact.kind for fact in facts]


def test_a_welcome_node_is_accepted_and_asked_to_acknowledge() -> None:
    facts = decided(None, event(Kind.NODE_INTROSPECTION, 80, 5))
    assert kinds(facts) == [Kind.NODE_ACCEPTED, Kind.ACK_REQUESTED]
    assert [fact.position for fact in facts] == [81, 82]
    assert [fact.deadline for fact in facts] == [at(530), at(530)]


def test_an_ack_leads_to_registration_and_a_shutdown_to_deregistration() -> None:
    assert kinds(decided(row(S.AWAITING_ACK), event(Kind.NODE_ACK, 200))) == [Kind.NODE_REGISTERED]
    facts = decided(row(S.ACTIVE), event(Kind.NODE_SHUTDOWN, 200, reason="upgrade"))
    assert kinds(facts) == [Kind.NODE_DEREGISTERED]
    assert facts[0].payload.model_dump()["reason"] == "upgrade"


@pytest.mark.parametrize(
    ("before", "cause"),
    [
        (row(S.ACTIVE), event(Kind.NODE_INTROSPECTION, 200, 5)),
        (row(S.ACTIVE), event(Kind.NODE_HEARTBEAT, 200, 5)),
        (row(S.ACTIVE), event(Kind.NODE_ACK, 200, 5)),
        (row(S.AWAITING_ACK), event(Kind.NODE_ACK, 200, 5, duplicate=True)),
        (row(S.AWAITING_ACK), event(Kind.NODE_ACK, 200, 5, tenant="other")),
        (row(S.AWAITING_ACK), event(Kind.NODE_ACK, 99, 5)),
        (None, event(Kind.NODE_ACK, 200, 5)),
        (None, event(Kind.NODE_SHUTDOWN, 200, 5)),
        (row(S.REJECTED), event(Kind.NODE_HEARTBEAT, 200, 5, tenant="other")),
    ],
)
def test_nothing_follows_from_an_event_that_changed_nothing_to_decide(
    before: ModelRegistrationProjection | None, cause: LogEvent
) -> None:
    assert decided(before, cause) == []


@pytest.mark.parametrize("before", [None, row(S.REJECTED), row(S.LIVENESS_EXPIRED)])
def test_a_heartbeat_without_a_life_asks_for_introspection(
    before: ModelRegistrationProjection | None,
) -> None:
    first, second = (decided(before, event(Kind.NODE_HEARTBEAT, 200 + n * 8, n)) for n in (1, 2))
    later = decided(before, event(Kind.NODE_HEARTBEAT, 400, 301))
    assert kinds(first) == [Kind.INTROSPECTION_REQUESTED]
    assert first[0].event_id == second[0].event_id != later[0].event_id


def test_the_same_cause_always_decides_the_same_ids() -> None:
    cause = event(Kind.NODE_INTROSPECTION, 80, 5)
    assert [f.event_id for f in decided(None, cause)] == [f.event_id for f in decided(None, cause)]
    other = event(Kind.NODE_INTROSPECTION, 88, 5)
    assert decided(None, cause)[0].event_id != decided(None, other)[0].event_id


def test_a_retry_after_an_ack_timeout_is_decided_anew() -> None:
    facts = decided(row(S.ACK_TIMED_OUT), event(Kind.NODE_INTROSPECTION, 200, 5, epoch=1))
    assert kinds(facts) == [Kind.NODE_ACCEPTED, Kind.ACK_REQUESTED]


@pytest.mark.parametrize(
    ("policy", "code", "names"),
    [
        ({"tenants": {"acme"}}, EnumRejection.TENANT_NOT_ALLOWED, "'omnibase' is not among acme"),
        ({"node_types": {"compute"}}, EnumRejection.NODE_TYPE_NOT_ALLOWED, "'effect'"),
        ({"versions": ">=2"}, EnumRejection.VERSION_NOT_ALLOWED, "'1.4.0' does not match '>=2'"),
        (
            {"required_capabilities": {"effect": {"read", "fly"}}},
            EnumRejection.CAPABILITY_MISSING,
            "fly",
        ),
        ({"forbidden_capabilities": {"read"}}, EnumRejection.CAPABILITY_FORBIDDEN, "read"),
    ],
)
def test_each_rule_of_the_policy_rejects_with_its_reason(
    policy: dict[str, Any], code: EnumRejection, names: str
) -> None:
    cause = event(Kind.NODE_INTROSPECTION, 80, node_version="1.4.0", capabilities={"read": True})
    facts = decided(None, cause, RegistrationPolicy(**policy))
    assert kinds(facts) == [Kind.REGISTRATION_FAILED]
    failure = facts[0].payload
    assert isinstance(failure, RegistrationFailedPayload)
    assert failure.error_code == code
    assert names in failure.error_message
    assert failure.retry_eligible is False


@pytest.mark.parametrize(
    ("version", "rule", "welcome"),
    [
        ("1.0.0", "", True),
        (None, "", True),
        (None, ">=1", False),
        ("not a version", ">=1", False),
        ("2.0.0-rc.1", ">=1,<2", False),
        ("1.9.0+build.7", ">=1,<2", True),
        ("1.2.0-alpha.1", ">=1", True),
    ],
)
def test_version_rules(version: str | None, rule: str, welcome: bool) -> None:
    node = row(S.PENDING_REGISTRATION, node_version=version)
    assert (judge(node, RegistrationPolicy(versions=rule)) is None) is welcome


def test_required_capabilities_are_found_in_flags_operations_and_protocols() -> None:
    rule = {EnumNodeType.EFFECT: frozenset({"a", "b", "c"})}
    node = row(
        S.PENDING_REGISTRATION,
        capabilities=ModelNodeCapabilities(a=True, supported_operations=("b",), protocols=("c",)),
    )
    assert judge(node, RegistrationPolicy(required_capabilities=rule)) is None
    switched_off = row(S.PENDING_REGISTRATION, capabilities=ModelNodeCapabilities(a=False))
    assert judge(switched_off, RegistrationPolicy(required_capabilities=rule)) is not None


def test_an_unreadable_version_rule_is_refused_with_an_example() -> None:
    with pytest.raises(ValidationError, match=r"versions='about 2' .* '>=1.2,<3'"):
        RegistrationPolicy(versions="about 2")
