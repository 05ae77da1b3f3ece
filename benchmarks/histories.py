"""Simulated histories for the benchmarks: as a log of pages, without a broker.

Most events are heartbeats. The rest are whole lives with most of what goes wrong in them; only
duplicates and malformed records are left out, because the ledger and the parking lot that catch
them are PostgreSQL's.
"""

from __future__ import annotations

import json
from concurrent.futures import Executor
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from onex_platform.base.settings import Settings
from onex_platform.domain.deadlines import Durations
from onex_platform.ingest.admission.admit import admit_records
from onex_platform.ingest.archive import PageArchive, intake_rules
from onex_platform.ingest.event_schema import buckets_of
from onex_platform.ingest.inputs import input_topics
from onex_platform.ingest.numbering import enter_log
from onex_platform.ingest.registration_pages import REGISTRATION_PAGES, EnumPageReason
from onex_platform.log.page_format import PageWriter
from onex_platform.log.page_layout import PageMetadata
from onex_platform.log.page_table import insert_pages
from onex_platform.log.store import PageStore, StoredPage, page_key
from onex_platform.simulate.fleet import Fleet
from onex_platform.simulate.history_files import write_file
from onex_platform.simulate.plan import FleetPlan, duration_for
from onex_platform.simulate.profiles import PROFILES
from onex_platform.simulate.routes import routes_of
from onex_platform.topics.catalogue import load_catalogue


def fleet_plan(events: int, nodes: int) -> FleetPlan:
    rates = {"duplicate": 0.0, "both_topics": 0.0, "malformed": 0.0}
    return FleetPlan(
        nodes=nodes,
        max_events=events,
        duration=duration_for(events, nodes, Durations()),
        profile=PROFILES["default"].changed(rates=rates),
    )


def simulate(path: Path, nodes: int, events: int) -> Path:
    """A history as Spark's Kafka source would show it, in one file."""
    write_file(Fleet(fleet_plan(events, nodes), routes_of(load_catalogue())), path)
    return path


class Destination(NamedTuple):
    """What a process must know to write a cut."""

    settings: Settings
    domain: str
    store_url: str
    buckets: int


def write_log(pool: Executor, to: Destination, history: Path, cut_events: int) -> list[StoredPage]:
    """The history as pages: cut after cut, a page per bucket, as ingest writes them."""
    file = pq.ParquetFile(history)
    sizes = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
    cut_of_group = np.cumsum([0, *sizes[:-1]]) // cut_events
    firsts = np.unique(cut_of_group, return_index=True)[1].tolist()
    cuts = list(pairwise([*firsts, len(sizes)]))
    return list(chain.from_iterable(pool.map(partial(_write_cut, to, history), cuts)))


def save_index(pages: list[StoredPage], path: Path) -> None:
    """Leave the list of a log's pages for another run of the benchmark."""
    path.write_text(
        json.dumps([[page.metadata.model_dump(mode="json"), *page[1:]] for page in pages])
    )


def load_index(path: Path) -> list[StoredPage]:
    return [
        StoredPage(PageMetadata.model_validate(about), *rest)
        for about, *rest in json.loads(path.read_text())
    ]


def enter(archive: PageArchive, pages: list[StoredPage]) -> None:
    """Make the pages the archive's log."""
    with archive.database.transaction() as cursor:
        insert_pages(cursor, pages)
        end = max(page.metadata.end_time for page in pages) + timedelta(seconds=1)
        head = end.replace(microsecond=0)
        cursor.execute("UPDATE log_heads SET head = %s WHERE domain = %s", [head, archive.domain])


def _write_cut(to: Destination, history: Path, groups: tuple[int, int]) -> list[StoredPage]:
    rules = intake_rules(to.settings, None)
    topics, read_at = input_topics(load_catalogue()), datetime.now(UTC)
    table = pq.ParquetFile(history).read_row_groups(list(range(*groups)))
    admitted = admit_records(table, topics, rules, read_at)
    assert not len(admitted.parked)
    first = table["timestamp"][0].as_py().astimezone(UTC)
    end = pc.max(table["timestamp"]).as_py().astimezone(UTC) + timedelta(milliseconds=1)
    store, pages = PageStore(to.store_url), []
    of_bucket = buckets_of(admitted.events["entity_id"].combine_chunks(), to.buckets)
    for bucket in range(to.buckets):
        events = admitted.events.filter(pa.array(of_bucket == bucket))
        if len(events):
            writer = PageWriter(REGISTRATION_PAGES)
            writer.add(bucket, enter_log(events, first, end, lambda _ids: set()))
            page = writer.finish(
                page_id=uuid4(),
                domain=to.domain,
                writer_id="benchmark",
                reason=EnumPageReason.INGEST,
                buckets=to.buckets,
                period=first.replace(minute=0, second=0, microsecond=0),
            )
            key = page_key(page.metadata)
            store.create(key, page.data)
            pages.append(StoredPage(page.metadata, key, len(page.data), page.checksum))
    return pages
