"""Pages that were written before the log was shared are read as they were meant.

The files were encoded by the code of that time, from the events below.
"""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from uuid import UUID

import psycopg
import pyarrow as pa
import pytest
from psycopg.types.json import Jsonb
from pydantic_core import from_json
from sqlalchemy import make_url

from onex_platform.base.paths import project_folder
from onex_platform.base.settings import PagesSettings, Settings
from onex_platform.domain.events import EnumEventKind, LogEvent
from onex_platform.domain.order import position_at
from onex_platform.engines.postgres.migrations import migrate
from onex_platform.ingest.event_schema import to_events
from onex_platform.ingest.registration_pages import (
    BEATS,
    CHANGES,
    REGISTRATION_PAGES,
    EnumPageReason,
    RegistrationPage,
)
from onex_platform.ingest.verification import verify_log
from onex_platform.log.compaction.compact import plan
from onex_platform.log.compaction.merge import merge_group
from onex_platform.log.page_format import (
    METADATA_KEY,
    checksum_of,
    open_page,
    read_metadata,
    read_page,
)
from onex_platform.log.store import page_key
from onex_platform.log.verify.page_check import verify_pages
from onex_platform_tests.support.archives import open_archive
from onex_platform_tests.support.events import START, at, event, number_id
from onex_platform_tests.support.kept_files import kept_files
from onex_platform_tests.support.written_logs import events_of

FILES = kept_files(Path(__file__).with_name("pages_before.json"))
LAST_MIGRATION_BEFORE = "0023"
Kind = EnumEventKind


def events_before() -> list[LogEvent]:
    return [
        event(kind, 80 * n + place, n, node=number_id(1000 + n))
        for n in range(6)
        for kind, place in (
            (Kind.NODE_INTROSPECTION, 8),
            (Kind.NODE_ACCEPTED, 9),
            (Kind.NODE_HEARTBEAT, 16),
        )
    ]


@pytest.mark.parametrize("name", ["packed", "apart"])
def test_a_page_from_before_is_decoded(name: str) -> None:
    file = open_page(io.BytesIO(FILES[f"{name}.parquet"]))
    page = read_metadata(REGISTRATION_PAGES, file)
    assert isinstance(page, RegistrationPage)
    assert (page.reason, page.packed) == (EnumPageReason.INGEST, name == "packed")
    assert (page.event_count, page.counters, page.sequences) == (18, {"decided": 6}, {})
    lanes = [read_page(REGISTRATION_PAGES, file, page, lane=lane) for lane in (CHANGES, BEATS)]
    assert list(map(len, lanes)) == [12, 6]
    events = list(to_events(pa.concat_tables(lanes), "registration"))
    assert sorted(events, key=str) == sorted(events_before(), key=str)


@pytest.mark.servers
def test_an_archive_from_before_is_migrated_verified_replayed_and_merged(
    database_settings: Settings, database_url: str, tmp_path: Path
) -> None:
    earlier = tmp_path / "sql"
    earlier.mkdir()
    for file in project_folder("sql").glob("*.sql"):
        if file.name[:4] <= LAST_MIGRATION_BEFORE:
            shutil.copy(file, earlier)
    migrate(database_settings, earlier)
    settings = database_settings.model_copy(
        update={"pages": PagesSettings(url=str(tmp_path / "pages"), buckets=4)}
    )
    url = make_url(database_url).set(drivername="postgresql").render_as_string(False)
    with psycopg.connect(url) as database:
        database.execute("INSERT INTO logs VALUES ('registration', 4, %s)", [at(10)])
        for name in ("packed", "apart"):
            _enter(database, tmp_path / "pages", FILES[f"{name}.parquet"])
        database.execute(
            "INSERT INTO log_cuts VALUES ('registration', %s, %s, 24, 24, 0, 0)",
            ["1970-01-01Z", at(10)],
        )
    migrate(settings)
    with open_archive(settings) as archive:
        assert archive.cuts.head() == at(10)
        twice = sorted([*events_before(), *events_before()], key=str)
        assert verify_log(archive.log).faults == verify_pages(archive.log).faults == []
        assert sorted(events_of(archive), key=str) == twice
        [group] = plan(archive.log, position_at(at(86400)))  # when their day is over
        [merged] = merge_group(archive.log, group)
        assert merged.metadata.counters == {"decided": 12}
        assert sorted(events_of(archive), key=str) == twice
        assert verify_log(archive.log).faults == verify_pages(archive.log).faults == []


def _enter(database: psycopg.Connection, folder: Path, data: bytes) -> None:
    """Store a page and enter it as the code of that time did."""
    metadata = from_json(open_page(io.BytesIO(data)).metadata.metadata[METADATA_KEY])
    key = page_key(RegistrationPage.model_validate(metadata))
    (folder / key).parent.mkdir(parents=True, exist_ok=True)
    (folder / key).write_bytes(data)
    database.execute(
        "INSERT INTO pages (page_id, domain, key, metadata, reason, period, bucket_numbers,"
        " min_position, max_position, event_count, encoded_bytes, checksum)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
        (
            UUID(metadata["page_id"]),
            *("registration", key, Jsonb(metadata), metadata["reason"], START),
            sorted({group[0] for group in metadata["row_groups"]}),
            *(metadata["min_position"], metadata["max_position"], metadata["event_count"]),
            *(len(data), checksum_of(data)),
        ),
    )
