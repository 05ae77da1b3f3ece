"""Headers, keys and signatures on real servers: counted or parked, and every account adds up."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from onex_platform.base.settings import Settings
from onex_platform.domain import headers as h
from onex_platform.domain.events import EnumEventKind
from onex_platform.engines.kafka.clients import KafkaRecord
from onex_platform.ingest.archive import PageArchive, open_archive
from onex_platform.ingest.header_counts import header_counts
from onex_platform.ingest.letters.letter_replay import EnumReplayVerdict as Verdict
from onex_platform.ingest.letters.letter_replay import replay
from onex_platform.ingest.letters.parked_letters import LetterFilter
from onex_platform.records.key_folder import KeyFolder
from onex_platform.records.signing import Signer
from onex_platform.topics.catalogue import Catalogue, load_catalogue
from onex_platform.topics.contract import HeaderPolicy
from onex_platform_tests.support.broker import send, sent
from onex_platform_tests.support.folded_logs import require_live_equals_replay
from onex_platform_tests.support.key_folders import filled, with_keys
from onex_platform_tests.support.pipeline_runs import drained

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.servers

Kind = EnumEventKind
BEATS = load_catalogue().for_kind(Kind.NODE_HEARTBEAT).topic
JOINS = load_catalogue().for_kind(Kind.NODE_INTROSPECTION).topic
ACKS = load_catalogue().for_kind(Kind.NODE_ACK).topic
_CHANGES = {
    BEATS: {"signed": True},
    JOINS: {"headers": HeaderPolicy(required=("x-actor",), on_read=h.EnumOnRead.PARK)},
    ACKS: {"headers": HeaderPolicy(required=("x-actor", "x-scope"))},
}


def strict_catalogue() -> Catalogue:
    """The platform's topics: heartbeats signed, introspections parked without an actor."""
    return Catalogue(
        contract.model_copy(update=_CHANGES.get(contract.legacy_of or contract.topic, {}))
        for contract in load_catalogue()
    )


def with_headers(record: KafkaRecord, **headers: str) -> KafkaRecord:
    named = [(f"x-{name}", value) for name, value in headers.items()]
    return record._replace(headers=[*record.headers, *named])


@pytest.mark.parametrize("small_cut_events", [0, 50_000], ids=["page per bucket", "one page"])
def test_every_record_is_taken_counted_or_parked(
    spark: SparkSession, pipeline_settings: Settings, tmp_path: Path, small_cut_events: int
) -> None:
    pages = pipeline_settings.pages.model_copy(update={"small_cut_events": small_cut_events})
    settings = with_keys(tmp_path, pipeline_settings.model_copy(update={"pages": pages}))
    filled(settings, actors=("tests", "stranger"))
    signer = Signer(KeyFolder(settings), "tests")
    beat = with_headers(sent(Kind.NODE_HEARTBEAT, "a"), actor="tests", scope="s")
    good = signer.sign(beat)
    records = [
        *(with_headers(sent(Kind.NODE_INTROSPECTION, name), actor="tests") for name in "abc"),
        sent(Kind.NODE_INTROSPECTION, "d"),  # no actor
        with_headers(sent(Kind.NODE_INTROSPECTION, "e"), actor="others"),  # not the source
        good,
        beat,  # not signed
        good._replace(value=good.value.replace(b"tests", b"guest")),  # type: ignore[union-attr, arg-type]
        good._replace(key="b"),
        with_headers(good, tenant="other"),
        signer.sign(beat._replace(topic=ACKS))._replace(topic=BEATS),  # copied here
        Signer(KeyFolder(settings), "stranger").sign(beat),  # another's key
        with_headers(sent(Kind.NODE_ACK, "a"), actor="tests", scope="s"),
        with_headers(sent(Kind.NODE_ACK, "b"), actor="tests")._replace(key="somewhere"),
        with_headers(sent(Kind.NODE_ACK, "c"), actor="others", scope="s"),
    ]
    send(settings, records)
    with open_archive(settings, strict_catalogue()) as archive:
        account = drained(spark, archive)
        assert account.read == len(records) == account.archived + account.parked
        with archive.database.transaction() as cursor:
            parked = Counter(
                (row.topic, row.reason)
                for row in cursor.execute("SELECT topic, reason FROM parked_records")
            )
            today = datetime.now(UTC).date()
            counted = {
                (row.topic, row.finding): row.records
                for row in header_counts(cursor, archive.domain, today)
            }
        require_live_equals_replay(archive)
        assert judged(archive) == {Verdict.UNREADABLE: 8}
    assert parked == {
        (JOINS, "bad_headers"): 2,
        (BEATS, "unsigned"): 1,
        (BEATS, "bad_signature"): 4,
        (BEATS, "unknown_key"): 1,
    }
    assert counted == {
        (ACKS, "missing_header"): 1,
        (ACKS, "key_is_not_the_field"): 1,
        (ACKS, "actor_is_not_source"): 1,
    }
    # A release that asks for less takes what was parked, of one event id the first.
    with open_archive(settings, load_catalogue()) as archive:
        assert judged(archive) == {Verdict.ENTERS: 3, Verdict.DUPLICATE: 5}
        assert drained(spark, archive).archived >= 3
        assert not judged(archive)
        require_live_equals_replay(archive)


def judged(archive: PageArchive) -> Counter[Verdict]:
    """Replay everything that is parked."""
    letters = replay(archive.platform, LetterFilter(), datetime.now(UTC), by="ada")
    return Counter(letter.verdict for letter in letters)
