"""Topic names: one dialect each, a round trip without loss, refusals that name the broken rule."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onex_platform.base.errors import ConfigurationError
from onex_platform.topics.grammar import (
    NOT_FOR_TENANTS,
    EnumTopicDialect,
    LegacyName,
    NamespaceName,
    OnexName,
    SnapshotName,
    StreamName,
    TopicName,
    collisions,
    logical,
    parse,
    parse_logical,
    physical,
)

_SNAKE = st.from_regex(r"[a-z][a-z0-9]{0,8}(_[a-z0-9]{1,8}){0,2}", fullmatch=True)
_KEBAB = st.from_regex(r"[a-z0-9]{1,8}(-[a-z0-9]{1,8}){0,2}", fullmatch=True)
_VERSION = st.integers(1, 999)
_CLASSES = ["evt", "cmd", "qrs", "ctl", "dlt", "rty", "cdc", "met", "aud", "log"]

_TENANT = _KEBAB.filter(lambda word: word not in NOT_FOR_TENANTS)
_PREFIX = st.none() | _TENANT

_ONEX = st.builds(
    OnexName,
    _SNAKE.filter(lambda word: word != "snapshot"),
    _SNAKE,
    _SNAKE,
    _VERSION,
    tenant=_PREFIX,
)
_SNAPSHOT = st.builds(SnapshotName, _KEBAB, _KEBAB, _VERSION, tenant=_PREFIX)
_NAMESPACE = st.builds(
    NamespaceName,
    st.sampled_from(["dev", "stage", "prod", "sand", "test"]),
    _TENANT,
    _KEBAB,
    st.sampled_from(_CLASSES),
    _KEBAB,
    _VERSION,
)
_LEGACY = st.builds(LegacyName, _SNAKE)
_NAMES = st.one_of(_ONEX, _SNAPSHOT, _NAMESPACE, _LEGACY)

# Written anew, so that the module's own patterns do not judge themselves.
_FORMS = {
    EnumTopicDialect.ONEX: r"([a-z0-9-]+\.)?onex\.(?!snapshot\.)[a-z]\w*\.[a-z]\w*\.[a-z]\w*\.v\d+",
    EnumTopicDialect.SNAPSHOT: r"([a-z0-9-]+\.)?onex\.snapshot\.[a-z0-9-]+\.[a-z0-9-]+\.v\d+",
    EnumTopicDialect.NAMESPACE: (
        r"(dev|stage|prod|sand|test)\.[a-z0-9-]+\.[a-z0-9-]+\.[a-z]{3}\.[a-z0-9-]+\.v\d+"
    ),
    EnumTopicDialect.LEGACY: r"node\.[a-z]\w*",
}


@given(_NAMES)
def test_every_name_of_a_dialect_survives_the_round_trip(name: TopicName) -> None:
    assert parse(str(name)) == name
    assert type(parse(str(name))) is type(name)


@given(_NAMES)
def test_every_name_has_the_form_of_exactly_one_dialect(name: TopicName) -> None:
    fitting = [dialect for dialect, form in _FORMS.items() if re.fullmatch(form, str(name))]
    assert fitting == [name.dialect]


@given(
    st.one_of(
        st.text(max_size=300),
        st.lists(st.sampled_from(["onex", "snapshot", "node", "prod", "evt", "v1", "a_b", ""])).map(
            ".".join
        ),
    )
)
def test_any_text_is_either_refused_or_means_exactly_itself(text: str) -> None:
    try:
        name = parse(text)
    except ConfigurationError:
        return
    assert str(name) == text
    assert len(text) <= 249
    assert re.fullmatch(_FORMS[name.dialect], text)


@given(_NAMES, _TENANT, st.sampled_from(["dev", "prod"]))
def test_a_contract_s_name_and_a_broker_s_lead_to_each_other(
    name: TopicName, tenant: str, environment: str
) -> None:
    contract_s = logical(name)
    assert parse_logical(str(contract_s)) == contract_s
    if not isinstance(name, LegacyName):
        broker_s = physical(contract_s, environment=environment, tenant=tenant, home="at-home")
        assert logical(parse(str(broker_s))) == contract_s
        assert tenant in str(broker_s).split(".")
    at_home = physical(contract_s, environment=environment, tenant="home", home="home")
    assert logical(parse(str(at_home))) == contract_s


def test_names_of_the_home_tenant_carry_no_prefix() -> None:
    name = parse_logical("onex.node.heartbeat.published.v1")
    where = {"environment": "prod", "home": "omnibase"}
    assert str(physical(name, tenant="omnibase", **where)) == str(name)
    assert str(physical(name, tenant="acme", **where)) == f"acme.{name}"
    stream = StreamName("kb", "qrs", "search-requests", 1)
    assert str(physical(stream, tenant="acme", **where)) == "prod.acme.kb.qrs.search-requests.v1"
    with pytest.raises(ConfigurationError, match="tenant 'acme' has none"):
        physical(LegacyName("heartbeat"), tenant="acme", **where)


@pytest.mark.parametrize(
    "name",
    ["prod.omnibase.kb.qrs.search-requests.v1", "acme.onex.node.heartbeat.published.v1"],
)
def test_a_contract_s_name_has_no_tenant(name: str) -> None:
    with pytest.raises(ConfigurationError, match="names a tenant"):
        parse_logical(name)


def test_the_parts_of_each_dialect_have_names() -> None:
    assert parse("onex.registry.node.ack_timed_out.v2") == OnexName(
        domain="registry", entity="node", event="ack_timed_out", version=2
    )
    assert parse("onex.snapshot.platform.registration-snapshots.v1") == SnapshotName(
        context="platform", subject="registration-snapshots", version=1
    )
    assert parse("prod.omnibase.kb.qrs.search-requests.v1") == NamespaceName(
        environment="prod",
        tenant="omnibase",
        context="kb",
        stream_class="qrs",
        topic="search-requests",
        version=1,
    )
    assert parse("node.request_introspection") == LegacyName(subject="request_introspection")


def test_an_event_kind_is_the_name_without_platform_and_version() -> None:
    name = parse("onex.infra.circuit_breaker.state_changed.v1")
    assert isinstance(name, OnexName)
    assert name.event_kind == "infra.circuit_breaker.state_changed"


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("", "needs a real name"),
        (".", "needs a real name"),
        ("..", "needs a real name"),
        ("onex.node.heartbeat.published.v1\n", "characters that Kafka forbids"),
        ("onex.node.heart beat.published.v1", "characters that Kafka forbids"),
        ("onex.nöde.heartbeat.published.v1", "characters that Kafka forbids"),
        ("onex.node.heartbeat.v1", "has 4 parts; the onex form is onex.<domain>.<entity>.<event>"),
        ("onex.registry.node.registration.failed.v1", "has 6 parts"),
        ("onex.registration.snapshots", "has 3 parts"),
        ("onex.Node.heartbeat.published.v1", "has domain 'Node'"),
        ("onex.node.heart-beat.published.v1", "has entity 'heart-beat'; allowed: lower-case words"),
        ("onex.node..published.v1", "has entity ''"),
        ("onex.node.heartbeat.published.1", "has version '1'; allowed: v1, v2"),
        ("onex.node.heartbeat.published.v0", "has version 'v0'"),
        ("onex.node.heartbeat.published.v01", "has version 'v01'"),
        ("onex.snapshot.platform.v1", "the snapshot form is onex.snapshot.<context>"),
        ("onex.snapshot.platform.registration_snapshots.v1", "joined by '-'"),
        (
            "prod.omnibase.onex.event.contract-created.v1",
            "has stream class 'event'; allowed: one of",
        ),
        ("prod.OmniBase.onex.evt.contract-created.v1", "has tenant 'OmniBase'"),
        ("prod.omnibase.onex.evt.v1", "has 5 parts; the namespace form is <environment>"),
        ("qa.omnibase.onex.evt.contract-created.v1", "begins with 'qa', which no dialect does"),
        ("Tenant-1.onex.node.heartbeat.published.v1", "has tenant 'Tenant-1'"),
        ("tenant-1.node.heartbeat", "begins with 'tenant-1'"),
        ("node.onex.node.heartbeat.published.v1", "the legacy form"),
        ("prod.onex.node.heartbeat.published.v1", "has tenant 'onex'"),
        ("prod.test.onex.evt.contract-created.v1", "has tenant 'test'"),
        ("prd.omnibase.onex.evt.contract-created.v1", "did you mean 'prod'?"),
        ("prod.omnibase.onex.evnt.contract-created.v1", "did you mean 'evt'?"),
        ("node", "the legacy form is node.<subject>"),
        ("node.heartbeat.published", "has 3 parts"),
        ("__consumer_offsets", "begins with '__consumer_offsets'"),
    ],
)
def test_a_refusal_names_the_name_and_the_broken_rule(name: str, rule: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse(name)
    assert repr(name) in refused.value.message
    assert rule in refused.value.message


def test_the_length_limit_is_kafka_s() -> None:
    longest = "node." + "a" * 244
    assert str(parse(longest)) == longest
    with pytest.raises(ConfigurationError, match="has 250 characters; Kafka allows 249"):
        parse(longest + "a")


def test_names_that_differ_only_by_dot_and_underscore_collide() -> None:
    first, second = "onex.node.ack_sent.late.v1", "onex.node.ack.sent_late.v1"
    assert parse(first) != parse(second)
    assert collisions([first, "node.heartbeat", second]) == [(second, first)]


def test_a_name_does_not_collide_with_itself() -> None:
    assert collisions(["node.heartbeat", "node.heartbeat", "node.introspection"]) == []


@given(st.lists(st.text("a._", min_size=1, max_size=4), max_size=8))
def test_collisions_are_exactly_the_pairs_that_read_alike(names: list[str]) -> None:
    def alike(one: str, other: str) -> bool:
        return one != other and re.sub(r"[._]", "-", one) == re.sub(r"[._]", "-", other)

    expected = {frozenset((a, b)) for a in names for b in names if alike(a, b)}
    found = {
        frozenset((a, b)) for group in collisions(names) for a in group for b in group if a != b
    }
    assert found == expected
