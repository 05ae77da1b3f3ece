"""A catalogue that is given to `build_definitions` is the one that every station uses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from uuid import uuid4

import dagster as dg
import pytest

from onex_platform.base.settings import Settings
from onex_platform.deadlines.alerts import alert_of_holds
from onex_platform.deadlines.scan import scan
from onex_platform.definitions import build_definitions
from onex_platform.domain.events import EnumEventKind
from onex_platform.engines.kafka.clients import read_to_end
from onex_platform.ingest.archive import PageArchive
from onex_platform.ingest.inputs import input_ids, input_topics
from onex_platform.pipeline.status import look
from onex_platform.topics.catalogue import Catalogue, load_catalogue
from onex_platform.topics.provision import create_topics
from onex_platform_tests.support.contracts import with_own_topics
from onex_platform_tests.support.events import TENANT, event, number_id
from onex_platform_tests.support.stored_rows import open_store, queue_events
from onex_platform_tests.support.watched_clock import MINUTE, Watched

pytestmark = pytest.mark.servers

Kind = EnumEventKind


@pytest.fixture
def catalogue() -> Catalogue:
    """Other topics for an input, an event of the registry, a failure, and the snapshots."""
    own = with_own_topics(
        load_catalogue(), Kind.NODE_INTROSPECTION, Kind.NODE_ACCEPTED, Kind.ERROR_DETECTED
    )
    snapshots = own.snapshot("registration")
    renamed = snapshots.model_copy(
        update={"topic": f"onex.snapshot.test-{uuid4().hex}.registration-snapshots.v1"}
    )
    return Catalogue([renamed if contract is snapshots else contract for contract in own])


@pytest.fixture
def definitions(pipeline_settings: Settings, catalogue: Catalogue) -> dg.Definitions:
    create_topics(pipeline_settings, catalogue)
    return build_definitions(settings=pipeline_settings, catalogue=catalogue)


@pytest.fixture
def archive(definitions: dg.Definitions) -> Iterator[PageArchive]:
    own = {
        name: definitions.resources[name]
        for name in ("settings", "presence", "platform", "archive")
    }
    with dg.build_resources(own) as resources:
        yield resources.archive


def test_ingest_reads_its_inputs(archive: PageArchive, catalogue: Catalogue) -> None:
    own = catalogue.for_kind(Kind.NODE_INTROSPECTION).topic
    assert own not in load_catalogue()
    assert input_topics(archive.platform.catalogue)[own].kind is Kind.NODE_INTROSPECTION
    assert own in input_ids(archive.platform).present
    assert "archive" in {
        station.name for station in look(archive.platform, datetime.now(UTC)).stations
    }


def test_the_relay_publishes_to_its_topics(
    definitions: dg.Definitions, archive: PageArchive, catalogue: Catalogue
) -> None:
    fact = event(Kind.NODE_ACCEPTED, 1, event_id=number_id(1))
    with archive.database.transaction() as cursor:
        queue_events(cursor, [fact])
    with dg.DagsterInstance.ephemeral() as instance:
        ran = definitions.resolve_job_def("publish_snapshots").execute_in_process(instance=instance)
    [done] = ran.get_asset_materialization_events()
    topic = done.materialization.metadata["topic"].value
    assert topic == catalogue.snapshot("registration").topic
    topics = [catalogue.for_kind(Kind.NODE_ACCEPTED).topic]
    [sent] = read_to_end(archive.settings, topics)
    assert json.loads(sent.value() or b"")["event_id"] == str(fact.event_id)


def test_alarms_are_raised_in_its_topic(archive: PageArchive, catalogue: Catalogue) -> None:
    now = datetime.now(UTC)
    with open_store(archive.settings) as store:
        watched = Watched(archive, store)
        watched.active(100, now - 5 * MINUTE)
        watched.watched_at(now)
        watched.folded_to(now)
        assert scan(archive.platform, now).alerts == 1
    assert alert_of_holds(archive.platform, now) == 0
    topics = [catalogue.for_kind(Kind.ERROR_DETECTED).topic]
    [alarm] = read_to_end(archive.settings, topics)
    assert json.loads(alarm.value() or b"")["payload"]["context"]["tenant"] == TENANT
