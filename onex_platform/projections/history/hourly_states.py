"""Each hour's end state: `registration_history`, written once, the same whenever it is written.

An hour's end state is an earlier hour's with the events between folded onto it; so hours can be
written in any order and again, and a missing one costs only time. It is made of the log alone,
never of the live rows. A node that raises has no row in it and is named beside it: hours behind
can't be folded for it either, until a rebuild finds that it can be, and such hours are forgotten.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa
from psycopg.types.json import Jsonb

from onex_platform.base.errors import InfraError, OnexError
from onex_platform.base.faults import effect
from onex_platform.domain.order import moment_of, position_at
from onex_platform.engines.postgres.database import Cursor
from onex_platform.log.page_log import PageLog
from onex_platform.log.page_table import first_position
from onex_platform.log.pins import pinned_since
from onex_platform.projections.fold.column_fold import BucketFold
from onex_platform.projections.fold.refold import (
    BucketWork,
    ReplayJob,
    by_bucket,
    folded_to,
    plan_replay,
    replay_bucket,
    tasks_for,
)
from onex_platform.projections.history.state_files import (
    THE_BEGINNING,
    StateFile,
    StoredState,
    write_state,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR = timedelta(hours=1)

_REPORT = pa.schema(
    [
        pa.field("file", pa.string()),  # null: no node of the task has a row
        pa.field("set_aside", pa.list_(pa.binary()), nullable=False),
    ]
)
_STATES = "SELECT position, nodes, objects, set_aside FROM registration_history WHERE domain = %s"


class NotYetKnownError(OnexError):
    """The moment lies beyond what the log is folded to."""


def hour_of(moment: datetime) -> datetime:
    """The hour that a moment belongs to."""
    return moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def write_hour(spark: SparkSession, log: PageLog, hour: datetime) -> StoredState:
    """Write the state at the end of the hour that begins at `hour`, again if it was before."""
    hour = hour_of(hour)
    end = known_position(log, hour + HOUR)
    base = nearest_state(log, position_at(hour))
    job = plan_replay(log, base.position, end, base=base, spark=spark)
    tasks = tasks_for(log, job.size)
    prefix = f"history/{log.domain}/{hour:%Y/%m/%d/%H}"
    with effect("history.write_files"):
        writer = by_bucket(spark, log.buckets, tasks, _writer(job, prefix), _REPORT)
        reports = writer.collect()
    files = [StateFile.model_validate_json(report.file) for report in reports if report.file]
    aside = frozenset(UUID(bytes=bytes(node)) for report in reports for node in report.set_aside)
    state = StoredState(end, sum(file.nodes for file in files), tuple(files), aside)
    with (
        effect("history.commit_hour"),
        log.database.transaction() as cursor,
    ):
        _require_base(cursor, log.domain, base)
        _replace(cursor, log, hour, state)
    _delete_replaced(log)
    return state


def nearest_state(log: PageLog, position: int) -> StoredState:
    """The latest stored state that is not beyond a position."""
    with log.database.transaction() as cursor:
        row = cursor.execute(
            f"{_STATES} AND position <= %s ORDER BY position DESC LIMIT 1",
            [log.domain, position],
        ).fetchone()
    return THE_BEGINNING if row is None else _state(row)


def known_position(log: PageLog, moment: datetime) -> int:
    """The position that divides what was known at a moment from what came later."""
    position, folded = position_at(moment), folded_to(log.database, log.domain)
    if position > folded:
        raise NotYetKnownError(
            f"What was the state at {moment.isoformat()} is not known yet: "
            f"the log is folded up to {moment_of(folded).isoformat()}.",
            hint="Ask for an earlier moment, or let the pipeline catch up.",
        )
    return position


def unwritten_hours(log: PageLog) -> Iterator[datetime]:
    """The hours that are over and have no stored state yet, oldest first."""
    with log.database.transaction() as cursor:
        first = first_position(cursor, log.domain)
        written = {
            row.hour.astimezone(UTC)
            for row in cursor.execute(
                "SELECT hour FROM registration_history WHERE domain = %s", [log.domain]
            )
        }
    if first is None:
        return
    hour, folded = hour_of(moment_of(first)), moment_of(folded_to(log.database, log.domain))
    while hour + HOUR <= folded:
        if hour not in written:
            yield hour
        hour += HOUR


def _writer(job: ReplayJob, prefix: str) -> BucketWork:
    def write(_: int, buckets: list[int]) -> Iterator[pa.RecordBatch]:
        aside: list[bytes] = []

        def tables() -> Iterator[tuple[int, pa.Table]]:
            for bucket in buckets:
                replayed = replay_bucket(job, bucket, BucketFold.table)
                aside.extend(replayed.faults)
                yield bucket, replayed.rendered

        file = write_state(job.store, prefix, tables())
        report = {"file": None if file is None else file.model_dump_json(), "set_aside": aside}
        yield pa.RecordBatch.from_pylist([report], _REPORT)

    return write


def aside_in_hours(cursor: Cursor, domain: str) -> list[UUID]:
    """The nodes that some stored hour could not fold."""
    query = (
        "SELECT DISTINCT unnest(set_aside) AS entity_id FROM registration_history WHERE domain = %s"
    )
    return [row.entity_id for row in cursor.execute(query, [domain])]


def forget_hours_without(cursor: Cursor, domain: str, nodes: Collection[UUID]) -> int:
    """Let the hours be written anew that have no row of these nodes; how many there were."""
    forgotten = cursor.execute(
        "DELETE FROM registration_history WHERE domain = %s AND set_aside && %s::uuid[]"
        " RETURNING position, nodes, objects, set_aside",
        [domain, list(nodes)],
    ).fetchall()
    keys = {file.key for row in forgotten for file in _state(row).files}
    _let_go(cursor, domain, keys)
    return len(forgotten)


def _require_base(cursor: Cursor, domain: str, base: StoredState) -> None:
    """A base that lacks somebody may have been forgotten since, because the node came back."""
    if base.set_aside:
        query = f"{_STATES} AND position = %s FOR SHARE"
        row = cursor.execute(query, [domain, base.position]).fetchone()
        if row is None or _state(row) != base:
            raise InfraError(
                "The hour from which this one was written has been forgotten since.",
                hint="Nothing was stored; write the hour again.",
            )


def _let_go(cursor: Cursor, domain: str, keys: Collection[str]) -> None:
    """List files that go after the grace period."""
    cursor.execute(
        "INSERT INTO replaced_history (key, domain) SELECT unnest(%s::text[]), %s"
        " ON CONFLICT DO NOTHING",
        [list(keys), domain],
    )


def _replace(cursor: Cursor, log: PageLog, hour: datetime, state: StoredState) -> None:
    """Enter an hour's state into the index, and the files that it had before into the list of those
    that go after the grace period."""
    domain, keys = log.domain, {file.key for file in state.files}
    before = cursor.execute(
        f"{_STATES} AND hour = %s FOR UPDATE",
        [domain, hour],
    ).fetchone()
    replaced = set() if before is None else {file.key for file in _state(before).files}
    # A file that was on the list is found again by its content; it may have gone meanwhile.
    cursor.execute("DELETE FROM replaced_history WHERE key = ANY(%s) RETURNING key", [list(keys)])
    for row in cursor.fetchall():
        log.store.read_range(row.key, 0, 1)
    _let_go(cursor, domain, replaced - keys)
    files = Jsonb([file.model_dump() for file in state.files])
    cursor.execute(
        "INSERT INTO registration_history (domain, hour, position, nodes, objects, set_aside)"
        " VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT (domain, hour) DO UPDATE"
        " SET objects = excluded.objects, nodes = excluded.nodes, set_aside = excluded.set_aside,"
        " written_at = now()",
        [domain, hour, state.position, state.nodes, files, sorted(state.set_aside)],
    )


def _delete_replaced(log: PageLog) -> None:
    """Delete the files that were replaced longer ago than the grace period."""
    with (
        effect("history.delete_files"),
        log.database.transaction() as cursor,
    ):
        # Their rows are gone only after them: whoever dies in between leaves the rest to the next,
        # and whoever writes the same file anew waits to see whether it is still there.
        cursor.execute(
            "DELETE FROM replaced_history WHERE domain = %(domain)s AND replaced_at"
            " < least(now(), %(pinned)s::timestamptz) - make_interval(secs => %(grace)s)"
            " RETURNING key",
            {
                "domain": log.domain,
                "pinned": pinned_since(cursor, log.domain),
                "grace": log.settings.pages.grace_seconds,
            },
        )
        for row in cursor.fetchall():
            log.store.delete(row.key)


def _state(row: Any) -> StoredState:
    files = tuple(StateFile.model_validate(item) for item in row.objects)
    return StoredState(row.position, row.nodes, files, frozenset(row.set_aside))
