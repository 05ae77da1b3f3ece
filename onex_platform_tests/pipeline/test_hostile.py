"""What nobody should send, and what happens meanwhile: neither stops the records beside it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from onex_platform.base.settings import Settings
from onex_platform.domain.events import EnumEventKind
from onex_platform.engines.kafka.clients import KafkaRecord
from onex_platform.engines.spark.session import kafka_options
from onex_platform.ingest import archive as archives
from onex_platform.ingest import deduplication
from onex_platform.ingest.cuts.cut_job import ingest
from onex_platform.ingest.verification import verify_log
from onex_platform.pipeline import drain
from onex_platform_tests.support.archives import open_archive
from onex_platform_tests.support.broker import send, sent
from onex_platform_tests.support.folded_logs import require_live_equals_replay, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.servers

Kind = EnumEventKind
_HOLE = "@hole@"


def holed(kind: EnumEventKind, field: str, text: str) -> KafkaRecord:
    """A record with this text, which need not be JSON, in a field of its payload."""
    record = sent(kind, f"{kind}-{field}-{text[:12]}".replace("\\", "/"), **{field: _HOLE})
    value = json.loads(record.value or b"")
    return record._replace(value=json.dumps(value).replace(json.dumps(_HOLE), text).encode())


def dated(kind: EnumEventKind, node: str, moment: str) -> KafkaRecord:
    record = sent(kind, node)
    return record._replace(
        value=json.dumps(json.loads(record.value or b"") | {"timestamp": moment}).encode()
    )


PARKED = [
    dated(Kind.NODE_INTROSPECTION, "before the calendar", "0001-01-01T00:00:00+14:00"),
    dated(Kind.NODE_HEARTBEAT, "behind the calendar", "9999-12-31T23:59:59-14:00"),
    holed(Kind.LIVENESS_EXPIRED, "deadline", '"0001-01-01T00:00:00+14:00"'),
    holed(Kind.NODE_INTROSPECTION, "node_name", r'"\u0000"'),
    holed(Kind.NODE_INTROSPECTION, "capabilities", r'{"a": {"\u0000": true}}'),
    holed(Kind.NODE_INTROSPECTION, "metadata", r'{"a": "\ud800"}'),
    holed(Kind.NODE_INTROSPECTION, "metadata", '{"a": ' + "[" * 5000 + "]" * 5000 + "}"),
    holed(Kind.NODE_HEARTBEAT, "extra", "[" * 300 + "]" * 300),
    holed(Kind.NODE_INTROSPECTION, "metadata", '{"a": ' + "9" * 5000 + "}"),
    sent(Kind.NODE_HEARTBEAT, "odd headers", value=b"not json")._replace(
        headers=[("a", b"1"), ("a", b"2"), ("b", None), ("c", b"\x00")]
    ),
]
ADMITTED = [
    dated(Kind.NODE_INTROSPECTION, "first day", "0001-01-01T00:00:00Z"),
    dated(Kind.NODE_INTROSPECTION, "last day", "9999-12-31T23:59:59.999999Z"),
    holed(Kind.NODE_INTROSPECTION, "metadata", '{"a": ' + "[" * 195 + "]" * 195 + "}"),
    holed(Kind.NODE_INTROSPECTION, "metadata", '{"a": ' + "9" * 4300 + "}"),
    holed(Kind.NODE_INTROSPECTION, "endpoints", '{"": "\\ud83d\\ude00\\u007f\ufffe"}'),
    sent(Kind.NODE_INTROSPECTION, "long name", node_name="\U0010ffff" * 1024),
]


@pytest.mark.parametrize("small_cut_events", [0, 50_000], ids=["page per bucket", "one page"])
def test_hostile_records_do_not_stop_their_neighbours(
    spark: SparkSession, pipeline_settings: Settings, small_cut_events: int
) -> None:
    pages = pipeline_settings.pages.model_copy(update={"small_cut_events": small_cut_events})
    settings = pipeline_settings.model_copy(update={"pages": pages})
    good = [sent(Kind.NODE_INTROSPECTION, f"good-{n}") for n in range(3)]
    with open_archive(settings) as archive:
        send(settings, [*good, *PARKED, *ADMITTED])
        account = drain(spark, archive, linger_seconds=0.2)
        assert (account.archived, account.parked) == (9, len(PARKED))
        assert len(rows_of(archive)) == 9
        require_live_equals_replay(archive)
        assert verify_log(archive.log).faults == []
        with archive.database.transaction() as cursor:
            rows: list[Any] = cursor.execute(
                "SELECT value, header_names, header_values FROM parked_records"
            ).fetchall()
    assert {row.value for row in rows} == {record.value for record in PARKED}
    [(names, values)] = [row[1:] for row in rows if row.header_names]
    assert list(zip(names, values, strict=True)) == [
        ("a", b"1"),
        ("a", b"2"),
        ("b", None),
        ("c", b"\x00"),
    ]


@pytest.mark.parametrize(
    ("driver_cut_events", "name"), [(0, r"c\x00"), (5000, "c")], ids=["on Spark", "here"]
)
def test_a_nul_in_the_name_of_a_header_stops_nobody(
    spark: SparkSession, pipeline_settings: Settings, driver_cut_events: int, name: str
) -> None:
    pages = pipeline_settings.pages.model_copy(update={"driver_cut_events": driver_cut_events})
    settings = pipeline_settings.model_copy(update={"pages": pages})
    good = sent(Kind.NODE_HEARTBEAT, "good")
    # Not by our client, for which a name ends there.
    spark.createDataFrame(
        [(b"not json", [("c\x00", b"\x00")])],
        "value binary, headers array<struct<key string, value binary>>",
    ).write.format("kafka").options(
        **kafka_options(pipeline_settings.kafka), topic=good.topic
    ).save()
    send(pipeline_settings, [good])
    with open_archive(settings) as archive:
        account = drain(spark, archive, linger_seconds=0.2)
        assert (account.archived, account.parked) == (1, 1)
        with archive.database.transaction() as cursor:
            [row] = cursor.execute(
                "SELECT header_names, header_values FROM parked_records"
            ).fetchall()
        assert row == ([name], [b"\x00"])


def test_a_cut_during_which_ids_are_forgotten_is_taken_again(
    spark: SparkSession, pipeline_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuts = []

    def overtaken(*arguments: Any) -> Any:
        job = arguments[1]
        if job.cut.ranges:
            cuts.append(job)
            deduplication.prune(
                archive.database,
                archive.domain,
                now=datetime(2026, 2, 1, tzinfo=UTC),
                keep=timedelta(days=30),
                largest_retention=timedelta(days=7),
            )
        return ingest(*arguments)

    monkeypatch.setattr(archives, "ingest", overtaken)
    send(pipeline_settings, [sent(Kind.NODE_INTROSPECTION, "patient")])
    with open_archive(pipeline_settings) as archive:
        account = drain(spark, archive, linger_seconds=0.2)
        assert (len(cuts), account.archived) == (2, 1)
        assert len(rows_of(archive)) == 1
        assert verify_log(archive.log).faults == []
