"""Samples of every contract: who gets one, what it says, and what keeps it apart."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from onex_platform.base.errors import ConfigurationError
from onex_platform.base.paths import project_folder
from onex_platform.base.settings import Settings
from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.headers import findings, is_sample
from onex_platform.engines.kafka.clients import KafkaRecord
from onex_platform.health.canaries.contract_samples import (
    SampledTopic,
    sample_record,
    sampled_topics,
)
from onex_platform.migration.event_ids import event_id_of
from onex_platform.topics.catalogue import Catalogue, load_whole_catalogue
from onex_platform.topics.contract_folders import folder_of
from onex_platform.topics.grammar import OnexName
from onex_platform.topics.migration_intent import EnumMigrationPhase
from onex_platform.topics.policy import load_policy
from onex_platform_tests.support.events import at

SETTINGS = Settings(environment="sand")
TOPICS = {to.contract.topic: to for to in sampled_topics(SETTINGS, load_whole_catalogue())}
CRAWLS = "intelcrawler.evt.crawl-finding.v1"


def folder(to: SampledTopic) -> Path:
    place = folder_of(to.contract.name, load_policy().is_onex_entity)
    return Path(project_folder("contracts") / place)


def texts(record: KafkaRecord) -> Mapping[str, bytes]:
    return {
        name: value.encode() if isinstance(value, str) else value or b""
        for name, value in record.headers
    }


def test_events_that_the_log_does_not_read_get_samples_and_nothing_else_does() -> None:
    catalogue = load_whole_catalogue()
    assert CRAWLS in TOPICS
    assert TOPICS[CRAWLS].topic == f"sand.omnibase.{CRAWLS}"
    assert catalogue.for_kind(EnumEventKind.ERROR_DETECTED).topic in TOPICS
    inputs = {contract.topic for contract in catalogue.registration_inputs()}
    assert not inputs & TOPICS.keys()
    others = {c.topic for c in catalogue if c.stream_class not in (None, "evt")}
    assert not others & TOPICS.keys()


def test_a_contract_opts_out_and_a_topic_that_nobody_may_write_gets_none() -> None:
    contract = load_whole_catalogue()[CRAWLS]
    without = Catalogue([contract.model_copy(update={"canary": False})])
    assert list(sampled_topics(SETTINGS, without)) == []
    for phase in (EnumMigrationPhase.FREEZE, EnumMigrationPhase.RETIRED):
        closed = Catalogue([contract]).at({CRAWLS: phase})
        assert list(sampled_topics(SETTINGS, closed)) == []
    other = SETTINGS.model_copy(update={"tenant": "other"})
    assert list(sampled_topics(other, load_whole_catalogue())) == []


@pytest.mark.parametrize("topic", sorted(TOPICS))
def test_a_sample_is_what_its_contract_asks_and_is_marked(topic: str) -> None:
    to, event_id = TOPICS[topic], uuid4()
    record = sample_record(SETTINGS, to, event_id, at(0), 2)
    headers = texts(record)
    assert (record.topic, record.partition) == (to.topic, 2)
    assert is_sample(list(headers.items()))
    assert not set(to.contract.headers.required) - headers.keys()
    assert isinstance(record.key, str)
    value = record.value.encode() if isinstance(record.value, str) else record.value
    assert UUID(event_id_of(record.key.encode(), value, list(headers.items()))) == event_id
    if isinstance(to.contract.name, OnexName):
        event = json.loads(value or b"")
        assert event["event_id"] == str(event_id)
        asked = to.contract.header_rules
        named = (event | event["payload"]).get(to.contract.key)
        wrong = findings(
            list(headers.items()),
            asked,
            source=event["source"],
            key=record.key.encode(),
            keyed=named,
        )
        assert dict(wrong) == {}
    else:
        assert value
        assert not value.startswith(b"{")


def test_a_topic_for_which_none_can_be_made_says_so() -> None:
    private = TOPICS[CRAWLS].contract.with_private_fields({"crawl_id": "high"})
    with pytest.raises(ConfigurationError, match="private fields") as refused:
        sample_record(SETTINGS, SampledTopic(private, "topic"), uuid4(), at(0), 0)
    assert "canary: false" in (refused.value.hint or "")
