"""A run in service on real servers: events become snapshots, silence becomes a fact."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from onex_platform.base.settings import Settings
from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.states import EnumRegistrationState
from onex_platform.engines.kafka.clients import end_positions, read_to_end
from onex_platform.ingest.archive import PageArchive
from onex_platform.pipeline import serve
from onex_platform.projections.reader import ProjectionReaderRegistration
from onex_platform.simulate.watched_lives import watch_lives
from onex_platform.topics.catalogue import load_catalogue
from onex_platform_tests.support.archives import open_archive
from onex_platform_tests.support.broker import send, sent
from onex_platform_tests.support.folded_logs import require_live_equals_replay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.servers

Kind = EnumEventKind
State = EnumRegistrationState


def _under(archive: PageArchive, settings: Settings) -> PageArchive:
    """The archive in the hands of somebody with other settings."""
    return replace(archive, platform=replace(archive.platform, settings=settings))


def waiting(archive: PageArchive) -> int:
    with archive.database.transaction() as cursor:
        [(entries,)] = cursor.execute("SELECT count(*) FROM outbox").fetchall()
    return int(entries)


def test_two_lives_can_be_followed_in_registry_and_topic(
    spark: SparkSession, pipeline_settings: Settings
) -> None:
    registration = pipeline_settings.registration.model_copy(update={"first_liveness_seconds": 0.1})
    brief, other = pipeline_settings.model_copy(update={"registration": registration}), uuid4()
    with open_archive(pipeline_settings) as archive:
        for kind in (Kind.NODE_INTROSPECTION, Kind.NODE_ACK):
            send(pipeline_settings, [sent(kind, str(other))])
            serve(spark, _under(archive, brief), linger_seconds=0.2)
        sights = watch_lives(archive, lambda served: serve(spark, served, linger_seconds=0.5))
        assert [(sight.moment, sight.node, sight.expected) for sight in sights] == [
            ("announced", "leaver", State.AWAITING_ACK),
            ("announced", "silent", State.AWAITING_ACK),
            ("acknowledged", "leaver", State.ACTIVE),
            ("acknowledged", "silent", State.ACTIVE),
            ("one shut down", "leaver", None),
            ("one fell silent", "silent", State.LIVENESS_EXPIRED),
        ]
        assert [sight for sight in sights if not sight.is_as_expected] == []
        # Somebody else's node is overdue as well, and is not judged before its grace is over.
        reader = ProjectionReaderRegistration(archive.database)
        assert reader.get_registration_status(other) is State.ACTIVE
        assert waiting(archive) == 0
        require_live_equals_replay(archive)


def test_what_the_registry_decides_reaches_its_topics_and_comes_back_without_effect(
    spark: SparkSession, pipeline_settings: Settings
) -> None:
    node = str(uuid4())
    topics = [load_catalogue().for_kind(k).topic for k in (Kind.NODE_ACCEPTED, Kind.ACK_REQUESTED)]
    before = end_positions(pipeline_settings, topics)
    send(pipeline_settings, [sent(Kind.NODE_INTROSPECTION, node)])
    with open_archive(pipeline_settings) as archive:
        account = serve(spark, archive, linger_seconds=1)
        published = [
            message.topic()
            for message in read_to_end(pipeline_settings, topics, before)
            if message.key() == node.encode()
        ]
        assert sorted(published) == sorted(topics)
        assert account.published.events == 2
        # They are read again as what they are: duplicates of what stands in the log.
        assert account.drained.duplicates == 2
        require_live_equals_replay(archive)


def test_rows_are_folded_while_nothing_can_be_published(
    spark: SparkSession, pipeline_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = uuid4()
    send(pipeline_settings, [sent(Kind.NODE_INTROSPECTION, str(node))])
    with open_archive(pipeline_settings) as archive:
        reader = ProjectionReaderRegistration(archive.database)
        missing = f"onex.snapshot.nowhere-{node.hex[:8]}.registration-snapshots.v1"
        with monkeypatch.context() as patched:
            patched.setenv("SNAPSHOT_TOPIC", missing)
            account = serve(spark, archive, linger_seconds=0.2)
        assert any("Unknown topic" in failure for failure in account.failures)
        assert reader.get_registration_status(node) is State.AWAITING_ACK
        assert waiting(archive) > 0
        account = serve(spark, archive, linger_seconds=0.2)
        assert (account.failures, waiting(archive)) == ([], 0)


def test_a_run_that_starts_after_a_pause_declares_nobody_dead(
    spark: SparkSession, pipeline_settings: Settings
) -> None:
    registration = pipeline_settings.registration.model_copy(
        update={"first_liveness_seconds": 0.1, "heartbeat_liveness_seconds": 0.1}
    )
    settings = pipeline_settings.model_copy(update={"registration": registration})
    node = uuid4()
    with open_archive(settings) as archive:
        reader = ProjectionReaderRegistration(archive.database)
        for kind in (Kind.NODE_INTROSPECTION, Kind.NODE_ACK):
            send(settings, [sent(kind, str(node))])
            serve(spark, archive, linger_seconds=0.5)
        assert reader.get_registration_status(node) is State.ACTIVE
        patient = settings.deadlines.model_copy(update={"grace_seconds": 0})
        impatient = settings.model_copy(update={"deadlines": patient})
        account = serve(spark, _under(archive, impatient), linger_seconds=1)
        assert account.expired == 1
        assert reader.get_registration_status(node) is State.LIVENESS_EXPIRED
