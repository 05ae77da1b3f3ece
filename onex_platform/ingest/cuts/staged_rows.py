"""What a cut's tasks stage for the transaction that commits it: ids, and parked records."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from onex_platform.base.errors import OnexError
from onex_platform.engines.postgres.database import Cursor, fetch_one
from onex_platform.engines.postgres.staging import (
    RowCounts,
    clear_staging,
    discard_attempt,
    require_staged,
)
from onex_platform.ingest.deduplication import enter_staged
from onex_platform.ingest.numbering import ledgered

TABLES = ("staged_ids", "staged_parked")
_AT_ONCE = 100  # records, which may be large
_PARKED = (
    'topic, partition, "offset", kind, reason, detail, record_timestamp, append_time, legacy,'
    " key, value, header_names, header_values"
)


class DuplicateAcrossTasksError(OnexError):
    """One event id came under two entities, which separate tasks can't judge."""


def stage(
    cursor: Cursor, batch_id: UUID, task: int, events: pa.Table, parked: pa.Table
) -> RowCounts:
    """Stage one task's new ids and parked records, replacing those of an earlier attempt."""
    discard_attempt(cursor, TABLES, batch_id, task)
    with cursor.copy("COPY staged_ids (batch_id, task, event_id, reported_at) FROM STDIN") as copy:
        copy.write("".join(_id_lines(f"{batch_id}\t{task}", events)))
    ids = cursor.rowcount
    with cursor.copy(f"COPY staged_parked (batch_id, task, {_PARKED}) FROM STDIN") as copy:
        for batch in parked.to_batches(max_chunksize=_AT_ONCE):
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                copy.write_row((batch_id, task, *row))
    return {"staged_ids": ids, "staged_parked": cursor.rowcount}


def _id_lines(mark: str, events: pa.Table) -> Iterator[str]:
    """The ids that the ledger will keep, as COPY reads them: types would cost five times that."""
    judged = ledgered(events.drop_columns("payload"))
    entering = judged.filter(pc.invert(judged["duplicate"]))
    times = pc.coalesce(entering["reported_at"], entering["occurred_at"]).cast(pa.string())
    for event_id, time in zip(entering["event_id"].to_pylist(), times.to_pylist(), strict=True):
        yield f"{mark}\t{event_id.hex()}\t{time}\n"


def drop_staged(cursor: Cursor, batch_id: UUID) -> None:
    """Forget what the tasks of a cut staged that is not to be committed."""
    clear_staging(cursor, TABLES, batch_id)


def take_staged(cursor: Cursor, batch_id: UUID, domain: str, reported: RowCounts) -> None:
    """Move a cut's ids into the ledger and its parked records to theirs, as it is committed."""
    count = "SELECT count(*) AS ids FROM staged_ids WHERE batch_id = %s"
    staged = fetch_one(cursor, count, [batch_id])
    require_staged("staged_ids", staged.ids, reported)
    entered = enter_staged(cursor, domain, "staged_ids", batch_id)
    if staged.ids != entered:
        raise DuplicateAcrossTasksError(
            f"{staged.ids - entered} event ids of the cut came under two entities."
        )
    cursor.execute(
        f"INSERT INTO parked_records (domain, generation, {_PARKED})"  # noqa: S608 - constants
        f" SELECT domain, generation, {_PARKED}"
        " FROM staged_parked JOIN consumer_cursors USING (topic, partition)"
        " WHERE batch_id = %s AND domain = %s",
        [batch_id, domain],
    )
    require_staged("staged_parked", cursor.rowcount, reported)
    drop_staged(cursor, batch_id)
