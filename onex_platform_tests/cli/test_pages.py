"""`onex pages`: the archive by hand, on real servers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import OFFSET_END, TopicPartition

from onex_platform.base.settings import Settings, address_variables
from onex_platform.cli.main import cli
from onex_platform.domain.events import EnumEventKind
from onex_platform.engines.kafka.clients import KafkaRecord, open_admin
from onex_platform.engines.kafka.topic_admin import topic_names
from onex_platform.ingest.archive import PageArchive
from onex_platform.ingest.checks import archive_keeps_up
from onex_platform.ingest.cuts.consistent_cut import InputPartition, RecordsLostError
from onex_platform.ingest.inputs import input_ids, next_offsets
from onex_platform.ingest.lag import topic_states
from onex_platform.log.stats import log_stats
from onex_platform.projections.backlog import measure_backlog
from onex_platform.topics.catalogue import load_catalogue
from onex_platform.topics.provision import create_topics
from onex_platform_tests.support.archives import open_archive
from onex_platform_tests.support.broker import send, sent
from onex_platform_tests.support.waiting import eventually
from onex_platform_tests.support.written_logs import (
    WrittenLog,
    files_of,
    let_grace_pass,
    require_rows,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.servers


def onex(settings: Settings, *arguments: str, answer: str | None = None) -> Result:
    variables = address_variables(settings) | {
        "ONEX_PAGES_URL": settings.pages.url or "",
        "ONEX_PAGES_BUCKETS": str(settings.pages.buckets),
        "ONEX_SPARK_MASTER": "local[2]",
    }
    return CliRunner().invoke(cli, ["pages", *arguments], input=answer, env=variables)


def test_small_pages_are_counted_merged_and_swept(
    spark: SparkSession, archive: PageArchive, log: WrittenLog
) -> None:
    settings = archive.settings
    log.cuts(5)
    before = log_stats(archive.log)
    stats = json.loads(onex(settings, "stats", "--json").stdout)
    assert stats["pages"] == stats["mergeable_pages"] == before.pages
    assert stats["head"] == str(archive.cuts.head())
    dry = onex(settings, "compact", "--dry-run")
    assert dry.exit_code == 0
    assert dry.stdout.startswith(f"would merge  {before.pages} pages, {before.bytes} bytes")
    assert log_stats(archive.log) == before
    merged = onex(settings, "compact", "--limit", "3")
    assert merged.exit_code == 0, merged.output
    assert log_stats(archive.log).pages == 1
    assert f"replaced pages   {before.pages}" in onex(settings, "stats").stdout
    assert "deleted 0 replaced pages" in onex(settings, "sweep").stdout
    let_grace_pass(archive)
    swept = onex(settings, "sweep", "--dry-run").stdout
    assert swept == f"would delete {before.pages} replaced pages, {before.bytes} bytes\n"
    assert f"deleted {before.pages} replaced pages" in onex(settings, "sweep").stdout
    assert len(files_of(archive)) == 1
    require_rows(log)


def test_the_proof_is_printed_and_its_verdict_is_the_exit_code(
    spark: SparkSession, archive: PageArchive, log: WrittenLog
) -> None:
    settings = archive.settings
    log.cuts(3)
    whole = onex(settings, "verify", "--delete-orphans")
    assert whole.exit_code == 0, whole.output
    assert "faults           0" in whole.stdout
    page = next(archive.log.table.entries())
    archive.log.store.delete(page.key)
    broken = onex(settings, "verify", "--sample", "100")
    assert broken.exit_code == 1
    assert f"missing  {page.key} (positions {page.min_position}" in broken.stdout
    document = json.loads(onex(settings, "verify", "--json").stdout)
    assert [fault["fault"] for fault in document["faults"]] == ["missing"]
    assert document["events"] == len(log.run.log)
    failed = onex(settings, "compact")
    assert failed.exit_code == 1
    assert f"failed  {page.key} is not in the page archive" in failed.stdout


def test_a_loss_stops_reading_until_an_operator_accepts_it(
    spark: SparkSession, pipeline_settings: Settings
) -> None:
    settings = pipeline_settings
    with open_archive(settings) as archive:
        assert onex(settings, "skip-lost").stdout == "Nothing is lost.\n"
        send(settings, [sent(EnumEventKind.NODE_HEARTBEAT, f"node-{n}") for n in range(9)])
        archive.take_cut(spark, datetime.now(UTC) + timedelta(seconds=1))
        before = next_offsets(archive.platform)
        send(settings, [sent(EnumEventKind.NODE_HEARTBEAT, f"node-{n}") for n in range(6)])
        delete_everything(settings, before)
        now = datetime.now(UTC) + timedelta(seconds=1)
        with pytest.raises(RecordsLostError, match=r"heartbeat.* offsets \d+ to \d+"):
            archive.take_cut(spark, now)
        refused = onex(settings, "skip-lost", answer="n\n")
        assert refused.exit_code == 1
        assert "lost  " in refused.stdout
        assert next_offsets(archive.platform) == before
        accepted = onex(settings, "skip-lost", "--yes")
        assert "Reading goes on behind 6 lost offsets." in accepted.stdout
        assert archive.take_cut(spark, now) is not None
        verified = json.loads(onex(settings, "verify", "--json").stdout)
        assert (verified["faults"], verified["lost_offsets"], verified["offsets"]) == ([], 6, 15)


def test_a_topic_that_was_made_anew_is_read_from_its_beginning(
    spark: SparkSession, pipeline_settings: Settings
) -> None:
    settings, kind = pipeline_settings, EnumEventKind.NODE_HEARTBEAT
    topic = load_catalogue().for_kind(kind).topic
    now = datetime.now(UTC) + timedelta(seconds=1)

    def unreadable() -> KafkaRecord:
        return sent(kind, "node-1", value=b"not json")

    with open_archive(settings) as archive:
        make_anew(settings, topic)  # so that the test's offsets begin at 0, like the next ones
        with archive.database.transaction() as cursor:
            cursor.execute("DELETE FROM consumer_cursors WHERE topic = %s", [topic])
        send(settings, [unreadable(), *(sent(kind, f"node-{n}") for n in range(9))])
        archive.take_cut(spark, now)
        delete_topic(settings, topic)
        with pytest.raises(RecordsLostError, match=rf"{topic}\[\d\] holds nothing, but offset \d"):
            archive.take_cut(spark, now + timedelta(seconds=1))
        make_anew(settings, topic)
        send(settings, [unreadable()])
        before = {place: end for place, end in next_offsets(archive.platform).items() if end}
        read = {place: end for place, end in before.items() if place.topic == topic}
        with pytest.raises(RecordsLostError, match="`onex pages skip-lost`"):
            archive.take_cut(spark, now + timedelta(seconds=1))
        accepted = onex(settings, "skip-lost", "--yes")
        assert f"Reading begins anew in {len(read)} partitions." in accepted.stdout
        for place, offset in read.items():
            assert f"{place} holds " in accepted.stdout
            assert f", but offset {offset} comes next" in accepted.stdout
        send(settings, [sent(kind, f"node-{n}") for n in range(9)])
        taken = archive.take_cut(spark, datetime.now(UTC) + timedelta(seconds=1))
        assert taken is not None
        assert (taken.account.archived, taken.account.parked) == (9, 1)
        verified = json.loads(onex(settings, "verify", "--json").stdout)
        assert (verified["faults"], verified["restarts"]) == ([], len(read))
        with archive.database.transaction() as cursor:
            parked = cursor.execute(
                'SELECT "offset", generation FROM parked_records ORDER BY generation'
            ).fetchall()
        assert parked == [(0, 0), (0, 1)]


def test_a_topic_that_was_made_anew_is_recognised_even_if_it_has_grown_beyond_the_cursor(
    spark: SparkSession, pipeline_settings: Settings
) -> None:
    settings, kind = pipeline_settings, EnumEventKind.NODE_HEARTBEAT
    topic = load_catalogue().for_kind(kind).topic
    with open_archive(settings) as archive:
        make_anew(settings, topic)
        with archive.database.transaction() as cursor:
            cursor.execute("UPDATE consumer_cursors SET next_offset = 0 WHERE topic = %s", [topic])
        send(settings, [sent(kind, "node-1") for _ in range(5)])  # one partition; others stay empty
        assert archive.take_cut(spark, datetime.now(UTC) + timedelta(seconds=1)) is not None
        before = next_offsets(archive.platform)
        make_anew(settings, topic)
        send(settings, [sent(kind, f"node-{n}") for n in range(9) for _ in range(7)])
        now = datetime.now(UTC) + timedelta(seconds=1)
        for _ in range(2):
            with pytest.raises(RecordsLostError, match=r"offset 5 comes next of the topic that it"):
                archive.take_cut(spark, now)
        assert next_offsets(archive.platform) == before
        [state] = topic_states(
            settings,
            [load_catalogue().for_kind(kind)],
            before,
            datetime.now(UTC),
            input_ids(archive.platform).made_anew,
        )
        assert not archive_keeps_up(state).passed
        assert state.lag is not None
        assert (state.lag.events, state.lag.lost) == (63, 0)
        assert state.lag.restarted == state.partitions
        assert measure_backlog(archive.platform).records == 63
        partitions = sum(place.topic == topic for place in before)
        accepted = onex(settings, "skip-lost", "--yes")
        assert f"Reading begins anew in {partitions} partitions." in accepted.stdout
        taken = archive.take_cut(spark, now)
        assert taken is not None
        assert taken.account.archived == 63
        verified = json.loads(onex(settings, "verify", "--json").stdout)
        assert (verified["faults"], verified["restarts"]) == ([], partitions)
        assert archive.take_cut(spark, datetime.now(UTC) + timedelta(seconds=2)) is not None


def make_anew(settings: Settings, topic: str) -> None:
    delete_topic(settings, topic)
    create_topics(settings, load_catalogue())


def delete_topic(settings: Settings, topic: str) -> None:
    """Delete a topic that may be gone already, and wait until nobody can see it."""
    with open_admin(settings) as admin:
        if topic in topic_names(admin):
            admin.delete_topics([topic])[topic].result()
        assert eventually(lambda: topic not in topic_names(admin))


def delete_everything(settings: Settings, places: Iterable[InputPartition]) -> None:
    """Let the broker forget every record there is, as its retention would."""
    with open_admin(settings) as admin:
        ends = [TopicPartition(*place, OFFSET_END) for place in places]
        for answer in admin.delete_records(ends).values():
            answer.result()
