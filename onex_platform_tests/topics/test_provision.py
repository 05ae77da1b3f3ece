"""Creating the catalogue's topics on a real broker: idempotent, reporting, never destructive."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from random import randrange
from threading import Barrier

import pytest

from onex_platform.base.errors import ConfigurationError, InfraError
from onex_platform.base.settings import RegistrationSettings, Settings
from onex_platform.engines.kafka.clients import open_admin
from onex_platform.engines.kafka.topic_admin import TopicLayout, create, describe, topic_names
from onex_platform.topics.catalogue import Catalogue, load_catalogue
from onex_platform.topics.contract import Replication
from onex_platform.topics.provision import Drift, create_topics, layout_of
from onex_platform_tests.support.contracts import event, snapshot

pytestmark = pytest.mark.servers


@pytest.fixture
def catalogue() -> Catalogue:
    """Topics that no other test has: their version is."""
    version = randrange(1000, 10**9)
    return Catalogue(
        [
            event(topic=f"onex.node.heartbeat.published.v{version}"),
            event(topic=f"onex.node.introspection.published.v{version}", retention="P1D"),
            snapshot(topic=f"onex.snapshot.platform.registration-snapshots.v{version}"),
        ]
    )


def _found(settings: Settings, *names: str) -> dict[str, TopicLayout]:
    with open_admin(settings) as admin:
        return describe(admin, names)


def _names(catalogue: Catalogue) -> tuple[str, ...]:
    return tuple(contract.topic for contract in catalogue)


def test_missing_topics_are_created_as_their_contracts_say(
    kafka_settings: Settings, catalogue: Catalogue
) -> None:
    report = create_topics(kafka_settings, catalogue)
    assert (report.created, report.existing, report.drift) == (_names(catalogue), (), ())
    found = _found(kafka_settings, *_names(catalogue))
    for contract in catalogue:
        layout = found[contract.topic]
        assert (layout.partitions, layout.replication_factor) == (3, 1)
        wanted = contract.kafka_config("dev")
        assert {name: layout.config[name] for name in wanted} == wanted


def test_a_second_run_changes_nothing(kafka_settings: Settings, catalogue: Catalogue) -> None:
    create_topics(kafka_settings, catalogue)
    before = _found(kafka_settings, *_names(catalogue))
    report = create_topics(kafka_settings, catalogue)
    assert (report.created, report.existing, report.drift) == ((), _names(catalogue), ())
    assert _found(kafka_settings, *_names(catalogue)) == before


def test_the_whole_catalogue_fits_on_the_embedded_broker(kafka_settings: Settings) -> None:
    create_topics(kafka_settings, load_catalogue())
    report = create_topics(kafka_settings, load_catalogue())
    assert report.existing == _names(load_catalogue())
    assert report.drift == ()
    snapshots = load_catalogue().snapshot("registration").topic
    layout = _found(kafka_settings, snapshots)[snapshots]
    assert layout.partitions == 12
    assert layout.config["cleanup.policy"] == "compact"
    assert layout.config["message.timestamp.type"] == "LogAppendTime"


def test_a_dry_run_says_what_it_would_do_and_does_not(
    kafka_settings: Settings, catalogue: Catalogue
) -> None:
    report = create_topics(kafka_settings, catalogue, dry_run=True)
    assert (report.created, report.dry_run) == (_names(catalogue), True)
    with open_admin(kafka_settings) as admin:
        assert topic_names(admin).isdisjoint(_names(catalogue))


def test_drift_is_reported_and_left_as_it_is(
    kafka_settings: Settings, catalogue: Catalogue
) -> None:
    wanted = layout_of(next(iter(catalogue)), kafka_settings)
    other = TopicLayout(
        wanted.name,
        partitions=5,
        replication_factor=1,
        config={**wanted.config, "retention.ms": "1000", "message.timestamp.type": "CreateTime"},
    )
    with open_admin(kafka_settings) as admin:
        create(admin, [other])
    report = create_topics(kafka_settings, catalogue)
    assert wanted.name not in report.created
    assert report.drift == (
        Drift(wanted.name, "partitions", "3", "5"),
        Drift(wanted.name, "retention.ms", "3600000", "1000"),
        Drift(wanted.name, "message.timestamp.type", "LogAppendTime", "CreateTime"),
    )
    kept = _found(kafka_settings, wanted.name)[wanted.name]
    assert (kept.partitions, kept.config["retention.ms"]) == (5, "1000")


def test_topics_without_a_contract_are_reported_and_stay(
    kafka_settings: Settings, catalogue: Catalogue
) -> None:
    foreign = f"somebody.elses.{randrange(10**9)}"
    internal = f"__internal.{randrange(10**9)}"
    with open_admin(kafka_settings) as admin:
        create(admin, [TopicLayout(name, 1, 1, config={}) for name in (foreign, internal)])
        report = create_topics(kafka_settings, catalogue)
        assert foreign in report.unmanaged
        assert internal not in report.unmanaged
        assert foreign in topic_names(admin)


def test_two_at_once_create_every_topic_once(kafka_settings: Settings) -> None:
    for _ in range(5):
        version = randrange(1000, 10**9)
        topics = [f"onex.node.heartbeat.published.v{version + n}" for n in range(10)]
        catalogue = Catalogue(event(topic=topic) for topic in topics)
        together = Barrier(2)

        def run(catalogue: Catalogue = catalogue, together: Barrier = together) -> tuple[str, ...]:
            together.wait(10)
            report = create_topics(kafka_settings, catalogue)
            assert report.drift == ()
            assert sorted(report.created + report.existing) == sorted(_names(catalogue))
            return report.created

        with ThreadPoolExecutor(2) as pool:
            one, other = pool.submit(run), pool.submit(run)
        assert sorted(one.result() + other.result()) == sorted(topics)


def test_more_copies_than_brokers_is_told_with_the_way_out_and_nothing_is_created(
    kafka_settings: Settings, catalogue: Catalogue
) -> None:
    production = kafka_settings.model_copy(update={"environment": "prod"})
    modest, *others = catalogue
    possible = modest.model_copy(update={"replication": Replication(factor=1, min_insync=1)})
    with pytest.raises(InfraError) as refused:
        create_topics(production, Catalogue([possible, *others]))
    assert re.search(r"could not create topic onex\.\S+: .*replication", refused.value.message)
    assert "Add brokers" in (refused.value.hint or "")
    assert "ONEX_ENVIRONMENT" in (refused.value.hint or "")
    with open_admin(kafka_settings) as admin:
        assert topic_names(admin).isdisjoint(_names(catalogue))


def test_a_ledger_that_is_too_short_stops_it_before_anything_is_created(
    kafka_settings: Settings, catalogue: Catalogue
) -> None:
    forgetful = RegistrationSettings(ledger_days=1)
    settings = kafka_settings.model_copy(update={"registration": forgetful})
    with pytest.raises(ConfigurationError, match="ONEX_REGISTRATION_LEDGER_DAYS=1 is too short"):
        create_topics(settings, catalogue)
    with open_admin(kafka_settings) as admin:
        assert topic_names(admin).isdisjoint(_names(catalogue))
