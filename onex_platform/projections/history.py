"""Each hour's end state: `registration_history`, written once, the same whenever it is written.

An hour's end state is an earlier hour's with the events between folded onto it; so hours can be
written in any order and again, and a missing one costs only time. It is made of the log alone,
never of the live rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from psycopg.types.json import Jsonb

from onex_platform.domain.order import moment_of, position_at
from onex_platform.engines.postgres import Cursor, transaction
from onex_platform.errors import OnexError
from onex_platform.faults import effect
from onex_platform.pages.archive import PageArchive
from onex_platform.pages.store import PageStore
from onex_platform.projections.replaying import (
    BucketWork,
    ReplayJob,
    by_bucket,
    folded_to,
    plan_replay,
    replay_bucket,
    tasks_for,
)
from onex_platform.projections.state_files import StateFile, write_state

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR = timedelta(hours=1)

_REPORT = pa.schema([pa.field("file", pa.string(), nullable=False)])


class NotYetKnownError(OnexError):
    """The moment lies beyond what the log is folded to."""


class StoredState(NamedTuple):
    """What the log below `position` amounts to."""

    position: int
    nodes: int
    files: tuple[StateFile, ...]


THE_BEGINNING = StoredState(0, 0, ())


def hour_of(moment: datetime) -> datetime:
    """The hour that a moment belongs to."""
    return moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def write_hour(spark: SparkSession, archive: PageArchive, hour: datetime) -> StoredState:
    """Write the state at the end of the hour that begins at `hour`, again if it was before."""
    hour = hour_of(hour)
    end = known_position(archive, hour + HOUR)
    base = nearest_state(archive, position_at(hour))
    job = plan_replay(archive, base.position, end, base=base.files, spark=spark)
    tasks = tasks_for(archive, job.size)
    prefix = f"history/{archive.domain}/{hour:%Y/%m/%d/%H}"
    with effect("history.write_files"):
        writer = by_bucket(spark, archive.buckets, tasks, _writer(job, prefix), _REPORT)
        files = [StateFile.model_validate_json(report.file) for report in writer.collect()]
    state = StoredState(end, sum(file.nodes for file in files), tuple(files))
    with (
        effect("history.commit_hour"),
        transaction(archive.engine, archive.breaker) as cursor,
    ):
        _replace(cursor, archive, hour, state)
    _delete_replaced(archive)
    return state


def nearest_state(archive: PageArchive, position: int) -> StoredState:
    """The latest stored state that is not beyond a position."""
    with transaction(archive.engine, archive.breaker) as cursor:
        row = cursor.execute(
            "SELECT position, nodes, objects FROM registration_history"
            " WHERE domain = %s AND position <= %s ORDER BY position DESC LIMIT 1",
            [archive.domain, position],
        ).fetchone()
    return THE_BEGINNING if row is None else _state(row)


def known_position(archive: PageArchive, moment: datetime) -> int:
    """The position that divides what was known at a moment from what came later."""
    position, folded = position_at(moment), folded_to(archive)
    if position > folded:
        raise NotYetKnownError(
            f"What was the state at {moment.isoformat()} is not known yet: "
            f"the log is folded up to {moment_of(folded).isoformat()}.",
            hint="Ask for an earlier moment, or let the pipeline catch up.",
        )
    return position


def unwritten_hours(archive: PageArchive) -> Iterator[datetime]:
    """The hours that are over and have no stored state yet, oldest first."""
    with transaction(archive.engine, archive.breaker) as cursor:
        first = cursor.execute(
            "SELECT min(min_position) AS position FROM pages"
            " WHERE domain = %s AND replaced_at IS NULL",
            [archive.domain],
        ).fetchone()
        written = {
            row.hour.astimezone(UTC)
            for row in cursor.execute(
                "SELECT hour FROM registration_history WHERE domain = %s", [archive.domain]
            )
        }
    if first is None or first.position is None:
        return
    hour, folded = hour_of(moment_of(first.position)), moment_of(folded_to(archive))
    while hour + HOUR <= folded:
        if hour not in written:
            yield hour
        hour += HOUR


def _writer(job: ReplayJob, prefix: str) -> BucketWork:
    def write(_: int, buckets: list[int]) -> Iterator[pa.RecordBatch]:
        store = PageStore(job.store_url)
        tables = ((bucket, replay_bucket(job, store, bucket).table()) for bucket in buckets)
        file = write_state(store, prefix, tables)
        if file is not None:
            yield pa.RecordBatch.from_pylist([{"file": file.model_dump_json()}], _REPORT)

    return write


def _replace(cursor: Cursor, archive: PageArchive, hour: datetime, state: StoredState) -> None:
    """Enter an hour's state into the index, and the files that it had before into the list of those
    that go after the grace period."""
    domain, keys = archive.domain, {file.key for file in state.files}
    before = cursor.execute(
        "SELECT position, nodes, objects FROM registration_history"
        " WHERE domain = %s AND hour = %s FOR UPDATE",
        [domain, hour],
    ).fetchone()
    replaced = set() if before is None else {file.key for file in _state(before).files}
    # A file that was on the list is found again by its content; it may have gone meanwhile.
    cursor.execute("DELETE FROM replaced_history WHERE key = ANY(%s) RETURNING key", [list(keys)])
    for row in cursor.fetchall():
        archive.store.read_range(row.key, 0, 1)
    cursor.execute(
        "INSERT INTO replaced_history (key, domain) SELECT unnest(%s::text[]), %s",
        [list(replaced - keys), domain],
    )
    cursor.execute(
        "INSERT INTO registration_history (domain, hour, position, nodes, objects)"
        " VALUES (%s, %s, %s, %s, %s) ON CONFLICT (domain, hour) DO UPDATE"
        " SET objects = excluded.objects, nodes = excluded.nodes, written_at = now()",
        [domain, hour, state.position, state.nodes, Jsonb([f.model_dump() for f in state.files])],
    )


def _delete_replaced(archive: PageArchive) -> None:
    """Delete the files that were replaced longer ago than the grace period."""
    with (
        effect("history.delete_files"),
        transaction(archive.engine, archive.breaker) as cursor,
    ):
        # Their rows are gone only after them: whoever dies in between leaves the rest to the next,
        # and whoever writes the same file anew waits to see whether it is still there.
        cursor.execute(
            "DELETE FROM replaced_history WHERE domain = %(domain)s AND replaced_at"
            " < least(now(), (SELECT min(started_at) FROM running_rebuilds"
            " WHERE domain = %(domain)s)) - make_interval(secs => %(grace)s) RETURNING key",
            {"domain": archive.domain, "grace": archive.settings.pages.grace_seconds},
        )
        for row in cursor.fetchall():
            archive.store.delete(row.key)


def _state(row: Any) -> StoredState:
    files = tuple(StateFile.model_validate(item) for item in row.objects)
    return StoredState(row.position, row.nodes, files)
