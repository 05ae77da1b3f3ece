"""What tasks hand over to the transaction that commits a cut: ids for the ledger, parked records.

A task that runs again first removes what its earlier attempt staged.
"""

from __future__ import annotations

from uuid import UUID

import pyarrow as pa

from onex_platform.engines.postgres import Cursor
from onex_platform.pages.numbering import ledgered

_PARKED = (
    'topic, partition, "offset", kind, reason, detail, record_timestamp, append_time, legacy,'
    " key, value, header_names, header_values"
)


def stage(cursor: Cursor, batch_id: UUID, task: int, events: pa.Table, parked: pa.Table) -> None:
    """Stage one task's new ids and parked records, replacing those of an earlier attempt."""
    for table in ("staged_ids", "staged_parked"):
        cursor.execute(
            f"DELETE FROM {table} WHERE batch_id = %s AND task = %s",  # noqa: S608 - constant
            (batch_id, task),
        )
    entering = ledgered(events).filter(pa.compute.invert(ledgered(events)["duplicate"]))
    with cursor.copy("COPY staged_ids (batch_id, task, event_id, reported_at) FROM STDIN") as copy:
        for event_id, reported_at, occurred_at in zip(
            *(entering[name].to_pylist() for name in ("event_id", "reported_at", "occurred_at")),
            strict=True,
        ):
            copy.write_row((batch_id, task, UUID(bytes=event_id), reported_at or occurred_at))
    with cursor.copy(f"COPY staged_parked (batch_id, task, {_PARKED}) FROM STDIN") as copy:
        for row in zip(*(column.to_pylist() for column in parked.columns), strict=True):
            copy.write_row((batch_id, task, *row))
