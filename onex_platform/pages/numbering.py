"""Entry to the log over columns: order, positions and verdicts of a whole cut at once.

The meaning is `domain.order.number` followed by `domain.ledger.mark_duplicates`; a property test
holds the two together.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.ledger import is_ledgered
from onex_platform.domain.order import (
    LIFECYCLE_RANK,
    POSITION_STRIDE,
    POSITIONS_PER_MILLISECOND,
    position_at,
)

# Of ids, those that entered the log before.
LedgerLookup = Callable[[list[bytes]], set[bytes]]

_RANKED = pa.array([kind.value for kind in LIFECYCLE_RANK])
_LEDGERED = pa.array([kind.value for kind in EnumEventKind if is_ledgered(kind)])


def enter_log(events: pa.Table, closed_before: datetime, known_ids: LedgerLookup) -> pa.Table:
    """The events of a cut in log order, numbered, each marked if its id is known or came earlier.

    `events` must hold all of an entity's events of the cut, and all of an id's.
    """
    if not len(events):
        return events
    events = events.take(_cut_order(events))
    events = _with(events, "position", pa.array(_positions(events, closed_before)))
    return _with(events, "duplicate", pa.array(_duplicates(events, known_ids)))


def ledgered(events: pa.Table) -> pa.Table:
    """The events whose ids the ledger keeps."""
    return events.filter(pc.is_in(events["kind"], _LEDGERED))


def _cut_order(events: pa.Table) -> pa.Array:
    keys = pa.table(
        {
            "occurred_at": events["occurred_at"],
            "rank": pc.index_in(events["kind"], _RANKED),
            "topic": pc.fill_null(events["topic"], ""),
            "partition": pc.fill_null(events["partition"], -1),
            "offset": pc.fill_null(events["offset"], -1),
            "event_id": events["event_id"].cast(pa.binary()),
        }
    )
    return pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names])


def _positions(events: pa.Table, closed_before: datetime) -> NDArray[np.int64]:
    milliseconds = events["occurred_at"].cast(pa.int64()).to_numpy() // 1000
    slots = np.maximum(milliseconds * POSITIONS_PER_MILLISECOND, position_at(closed_before))
    entities = events["entity_id"].combine_chunks().dictionary_encode().indices.to_numpy()
    # A stable sort keeps the cut's order within each entity.
    order = np.lexsort((slots, entities))
    slot, entity = slots[order], entities[order]
    places = np.arange(len(order))
    begins = np.ones(len(order), dtype=bool)
    begins[1:] = (slot[1:] != slot[:-1]) | (entity[1:] != entity[:-1])
    rank = (places - np.maximum.accumulate(np.where(begins, places, 0))) * POSITION_STRIDE
    if rank.max() >= POSITIONS_PER_MILLISECOND:
        raise OverflowError("more events of one entity in a millisecond than have a place")
    positions = np.empty(len(order), dtype=np.int64)
    positions[order] = slot + rank
    return positions


def _duplicates(events: pa.Table, known_ids: LedgerLookup) -> NDArray[np.bool_]:
    marks = np.zeros(len(events), dtype=bool)
    judged = np.flatnonzero(pc.is_in(events["kind"], _LEDGERED).to_numpy(zero_copy_only=False))
    ids = events["event_id"].combine_chunks().take(pa.array(judged))
    encoded = ids.dictionary_encode()
    distinct = encoded.dictionary.to_pylist()
    known = known_ids(distinct)
    codes = encoded.indices.to_numpy()
    _, first = np.unique(codes, return_index=True)
    fresh = np.zeros(len(codes), dtype=bool)
    fresh[first] = True
    if known:
        fresh &= ~np.array([item in known for item in distinct])[codes]
    marks[judged] = ~fresh
    return marks


def _with(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    index = table.schema.get_field_index(name)
    return table.set_column(index, table.schema.field(index), values)
