"""A private field goes all the way, and is nowhere in clear; without its key it is gone."""

from __future__ import annotations

import json
import logging
import subprocess
from base64 import b64decode
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from click.testing import CliRunner

from onex_platform.base.settings import Settings, address_variables
from onex_platform.cli.main import cli
from onex_platform.domain import headers as h
from onex_platform.domain.events import EnumEventKind
from onex_platform.engines.kafka.clients import KafkaRecord, end_positions, read_to_end
from onex_platform.ingest.archive import PageArchive
from onex_platform.records.key_folder import KeyFolder
from onex_platform.records.privacy import FieldCipher
from onex_platform.records.wrapping import Wrapper
from onex_platform.snapshots.publish.relay import open_relay
from onex_platform.topics.catalogue import load_catalogue
from onex_platform_tests.support.archives import open_archive
from onex_platform_tests.support.broker import send, sent
from onex_platform_tests.support.folded_logs import (
    log_of,
    require_live_equals_replay,
    rows_of,
)
from onex_platform_tests.support.key_folders import filled, with_keys
from onex_platform_tests.support.pipeline_runs import drained

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.servers

Kind = EnumEventKind
TENANT = "omnibase"


def joining(
    settings: Settings, node: str, private: str, public: str, version: int = 1
) -> KafkaRecord:
    """An introspection as a node sends it whose schema has a private field."""
    plain = sent(
        Kind.NODE_INTROSPECTION,
        node,
        capabilities={"contact": private, "kind": public},
        node_version=public,
    )
    rules = h.PublishRules(plain.topic, {"payload.capabilities.contact": "high"})
    assert isinstance(plain.value, bytes)
    envelope = json.loads(plain.value) | {"schema_version": version}
    return Wrapper(settings).wrap(rules, node, json.dumps(envelope))


def tables_of(archive: PageArchive) -> str:
    """Every row of every table, as text."""
    with archive.database.transaction() as cursor:
        names = cursor.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
        ).fetchall()
        return "\n".join(
            row.line
            for (name,) in names
            for row in cursor.execute(f'SELECT t::text AS line FROM "{name}" AS t')  # noqa: S608
        )


def on_disk(folder: Path, text: str) -> bool:
    """Whether the bytes stand in any file below the folder."""
    found = subprocess.run(["grep", "-rqaF", text, str(folder)], check=False, timeout=120)
    return found.returncode == 0


def test_a_private_field_is_nowhere_in_clear_and_gone_with_its_key(
    spark: SparkSession,
    pipeline_settings: Settings,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    settings = with_keys(tmp_path, pipeline_settings)
    filled(settings, tenants=(TENANT,))
    private, public = f"ada-{uuid4().hex}", f"open-{uuid4().hex}"
    catalogue = load_catalogue()
    topics = [contract.topic for contract in catalogue]
    starts = end_positions(settings, topics)
    send(settings, [joining(settings, f"private-{n}", private, public) for n in range(3)])
    send(settings, [joining(settings, "private-3", private, public, version=99)])
    with open_archive(settings) as archive:
        assert drained(spark, archive).parked == 1
        with open_relay(settings, catalogue, database=archive.database) as relay:
            assert relay.publish_pending().snapshots == 3
        messages = list(read_to_end(settings, topics, starts))
        places = {
            "Kafka": "".join(str((m.value(), m.headers())) for m in messages),
            "pages": "".join(event.payload.model_dump_json() for event in log_of(archive)),
            "PostgreSQL": tables_of(archive),
            "export": exported(settings),
            "logs": caplog.text,
        }
        for place, text in places.items():
            assert private not in text, place
            assert (public in text) == (place != "logs"), place
        assert not on_disk(settings.stack.folder, private)
        assert not on_disk(tmp_path, private)
        require_live_equals_replay(archive)

        cipher = FieldCipher(KeyFolder(settings))
        assert {opened(cipher, row) for row in shown(archive)} == {private}
        [snapshot, *_] = [
            json.loads(m.value())
            for m in messages
            if m.topic() == catalogue.snapshot("registration").topic and m.value()
        ]
        assert cipher.revealed(snapshot)[0]["capabilities"]["contact"] == private

        [key_id] = KeyFolder(settings).destroy(TENANT).keys
        for document in (*shown(archive), snapshot["capabilities"]):
            found, reasons = cipher.revealed(document)
            assert found == document
            assert [str(key_id) in reason for reason in reasons] == [True]
        require_live_equals_replay(archive)


def exported(settings: Settings) -> str:
    """What is written of letters, with their bytes as they were sent."""
    ran = CliRunner().invoke(
        cli, ["dlt", "export"], env=address_variables(settings), catch_exceptions=False
    )
    letters = [json.loads(line) for line in ran.stdout.splitlines()]
    return "".join(str((b64decode(letter["value"]), letter)) for letter in letters)


def shown(archive: PageArchive) -> list[dict[str, Any]]:
    """What the registry's rows show of their nodes' capabilities."""
    rows = rows_of(archive).values()
    return [
        row.capabilities.model_dump(mode="json") for row in rows if row.capabilities is not None
    ]


def opened(cipher: FieldCipher, document: dict[str, Any]) -> Any:
    return cipher.revealed(document)[0]["contact"]
