"""What accounts can and can't do once a plan was applied."""

from __future__ import annotations

import time
from dataclasses import replace
from random import randbytes

import pytest
from confluent_kafka import KafkaException
from pydantic import SecretStr

from onex_platform.base.errors import InfraError
from onex_platform.base.settings import Settings
from onex_platform.engines.kafka.access import Right, grant, revoke
from onex_platform.engines.kafka.clients import (
    KafkaRecord,
    open_admin,
    open_consumer,
    open_producer,
    produce_all,
    read_to_end,
)
from onex_platform.engines.kafka.quotas import set_quotas
from onex_platform.engines.kafka.topic_admin import topic_names
from onex_platform.governance.cluster import apply, plan
from onex_platform.governance.cluster_plan import EnumDanger
from onex_platform.governance.governed import Governed
from onex_platform.governance.provision import create_topics
from onex_platform.topics.catalogue import load_whole_catalogue
from onex_platform.topics.policy import Policy
from onex_platform_tests.support.kafka_accounts import as_account

pytestmark = pytest.mark.servers

_TOPIC = "onex.node.heartbeat.published.v1"


@pytest.fixture
def governed(secured: Settings, policy: Policy) -> Governed:
    governed = replace(Governed.of(secured, load_whole_catalogue()), policy=policy)
    apply(governed, plan(governed), allowed=frozenset(EnumDanger))
    return governed


def _impatient(settings: Settings) -> Settings:
    limits = {"delivery_timeout_seconds": 5.0, "request_timeout_seconds": 5.0}
    return settings.model_copy(update={"kafka": settings.kafka.model_copy(update=limits)})


def test_an_account_works_with_its_own_tenant_s_topics(governed: Governed) -> None:
    own = as_account(governed.settings, "service-a", client_id="a.service")
    with open_producer(own) as producer:
        assert produce_all(producer, [KafkaRecord(f"a.{_TOPIC}", b"{}", "node")]) == 1
    assert any(m.value() == b"{}" for m in read_to_end(own, [f"a.{_TOPIC}"]))


@pytest.mark.parametrize("other", ["b", "ab"])
def test_an_account_can_t_read_write_see_or_join_a_group_of_another_tenant(
    governed: Governed, other: str
) -> None:
    own = _impatient(as_account(governed.settings, "service-a"))
    topic = f"{other}.{_TOPIC}"
    with open_admin(own) as admin:
        seen = topic_names(admin)
    assert f"a.{_TOPIC}" in seen
    assert not any(name.startswith(f"{other}.") for name in seen)
    with pytest.raises(InfraError), open_producer(own) as producer:
        produce_all(producer, [KafkaRecord(topic, b"{}", "node")])
    with pytest.raises(InfraError):
        list(read_to_end(own, [topic]))
    with open_consumer(own, f"{other}.readers") as consumer:
        consumer.subscribe([f"a.{_TOPIC}"])
        with pytest.raises(KafkaException, match="GROUP_AUTHORIZATION_FAILED"):
            _raise_first_error(consumer)


def _raise_first_error(consumer: object) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        message = consumer.poll(0.5)  # type: ignore[attr-defined]
        if message is not None and message.error() is not None:
            raise KafkaException(message.error())


def test_topics_that_an_account_can_t_see_are_not_planned_as_missing(governed: Governed) -> None:
    blind = as_account(governed.settings, "nobody")
    found = plan(replace(governed, settings=blind))
    assert [note for note in found.notes if "User:nobody may not list rights" in note]
    assert not found.steps
    assert len(found.refusals) == len(governed.topics)
    created = create_topics(blind, load_whole_catalogue())
    assert (created.created, created.existing) == ((), ())
    assert len(created.impossible) == len(Governed.of(blind, load_whole_catalogue()).topics)
    assert all("is not visible to User:nobody" in sentence for sentence in created.impossible)


def test_who_sees_rights_but_no_topics_plans_no_topic(governed: Governed) -> None:
    auditor = as_account(governed.settings, "auditor")
    seeing = [
        Right("User:auditor", "broker", "literal", "kafka-cluster", operation)
        for operation in ("describe", "describe_configs")
    ]
    with open_admin(governed.settings) as admin:
        grant(admin, seeing)
        try:
            found = plan(replace(governed, settings=auditor))
        finally:
            revoke(admin, seeing)
    assert not found.steps
    assert len(found.refusals) == len(governed.topics)
    assert all("is not visible to User:auditor" in refusal for refusal in found.refusals)


def test_a_wrong_password_is_told_in_a_few_seconds(governed: Governed) -> None:
    own = as_account(governed.settings, "service-a")
    wrong = own.model_copy(
        update={"kafka": own.kafka.model_copy(update={"sasl_password": SecretStr("wrong")})}
    )
    with pytest.raises(InfraError, match="refused user 'service-a'") as refused, open_admin(wrong):
        pass
    assert "ONEX_KAFKA_SASL_PASSWORD" in (refused.value.hint or "")


def test_a_client_that_does_not_trust_the_broker_is_told_what_to_look_at(
    secured: Settings,
) -> None:
    untrusting = secured.kafka.model_copy(update={"ssl_ca_location": None})
    with (
        pytest.raises(InfraError) as refused,
        open_admin(secured.model_copy(update={"kafka": untrusting})),
    ):
        pass
    assert "ONEX_KAFKA_SSL_" in (refused.value.hint or "")


def test_a_missing_right_is_told_with_who_and_what_grants_it(governed: Governed) -> None:
    own = _impatient(as_account(governed.settings, "service-a"))
    topic = f"b.{_TOPIC}"
    with pytest.raises(InfraError) as reading:
        list(read_to_end(own, [topic]))
    with pytest.raises(InfraError) as writing, open_producer(own) as producer:
        produce_all(producer, [KafkaRecord(topic, b"{}", "node")])
    for refused, operation in ((reading, "describe"), (writing, "write")):
        assert "does not let User:service-a" in refused.value.message
        assert f"needs the right to {operation} the topic {topic}." in refused.value.message
        assert "access.yaml" in (refused.value.hint or "")


def test_traffic_above_its_quota_is_throttled(governed: Governed) -> None:
    own = as_account(governed.settings, "service-a")
    set_quotas(governed.settings, "service-a", {"producer_byte_rate": 20_000.0})
    throttled: list[float] = []
    try:
        with open_producer(
            own, throttle_cb=lambda event: throttled.append(event.throttle_time)
        ) as p:
            for _ in range(4):
                records = [KafkaRecord(f"a.{_TOPIC}", randbytes(100_000), "node")]
                produce_all(p, records)
    finally:
        set_quotas(governed.settings, "service-a", {"producer_byte_rate": None})
    assert max(throttled, default=0) > 0
