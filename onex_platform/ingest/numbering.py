"""Entry to the log over columns: order, positions and verdicts of a whole cut at once.

The meaning is `number`, then `mark_duplicates`, of `domain.reference.log_order`; a property test
holds the two together.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.intake import is_ledgered
from onex_platform.domain.order import (
    EVENTS_PER_MILLISECOND,
    LIFECYCLE_RANK,
    POSITION_STRIDE,
    POSITIONS_PER_MILLISECOND,
    position_at,
)
from onex_platform.ingest.registration_pages import REGISTRATION_PAGES
from onex_platform.log.page_layout import ranks

# Of ids, those that entered the log before.
LedgerLookup = Callable[[list[bytes]], set[bytes]]

_RANKED = pa.array([kind.value for kind in LIFECYCLE_RANK])
_LEDGERED = pa.array([kind.value for kind in EnumEventKind if is_ledgered(kind)])


def enter_log(
    events: pa.Table, closed_before: datetime, instant: datetime, known_ids: LedgerLookup
) -> pa.Table:
    """The events of a cut, numbered, each marked if its id is known or came earlier.

    `events` must hold all of an entity's events of the cut, and all of an id's. They come out as a
    page wants them: sorted by entity, then by position.
    """
    if not len(events):
        return events
    keys = _cut_keys(events)
    order = np.lexsort((*keys, ranks(events["entity_id"].combine_chunks())))
    duplicates = _duplicates(events, keys, known_ids)
    events = REGISTRATION_PAGES.widened(events).combine_chunks().take(pa.array(order))
    events = _with(events, "position", pa.array(_positions(events, closed_before, instant)))
    return _with(events, "duplicate", pa.array(duplicates[order]))


def ledgered(events: pa.Table) -> pa.Table:
    """The events whose ids the ledger keeps."""
    return events.filter(pc.is_in(events["kind"], _LEDGERED))


def _cut_keys(events: pa.Table) -> tuple[NDArray[np.int64], ...]:
    """What `cut_key` sorts a cut by, the least of its parts first.

    No two records have the same place, so an event's id tells only facts from the inbox apart.
    """
    times = events["occurred_at"].cast(pa.int64()).to_numpy()
    lifecycle = pc.index_in(events["kind"], _RANKED).to_numpy()
    offsets = pc.fill_null(events["offset"], -1).to_numpy().copy()
    facts = np.flatnonzero(offsets < 0)
    if len(facts):
        offsets[facts] = ranks(events["event_id"].combine_chunks().take(pa.array(facts)))
    topics = ranks(pc.fill_null(events["topic"], "").combine_chunks())
    places = topics * 2**32 + pc.fill_null(events["partition"], -1).to_numpy()
    # Times are of this century: shifted by four bits they leave room for twelve ranks.
    return offsets, places, times * 16 + lifecycle


def _positions(events: pa.Table, closed_before: datetime, instant: datetime) -> NDArray[np.int64]:
    """The positions of events that are sorted by entity and by the order of the cut."""
    start, end = position_at(closed_before), position_at(instant)
    milliseconds = events["occurred_at"].cast(pa.int64()).to_numpy() // 1000
    slot = np.maximum(milliseconds * POSITIONS_PER_MILLISECOND, start)
    entity = ranks(events["entity_id"].combine_chunks())
    changes = entity[1:] != entity[:-1]
    rank = _ranks_since(np.concatenate([[True], changes | (slot[1:] != slot[:-1])]))
    positions: NDArray[np.int64] = slot + rank * POSITION_STRIDE
    if rank.max() < EVENTS_PER_MILLISECOND and slot.max() < end:
        return positions
    bounds = [0, *(np.flatnonzero(changes) + 1).tolist(), len(slot)]
    for first, beyond in pairwise(bounds):
        if rank[first:beyond].max() >= EVENTS_PER_MILLISECOND or slot[beyond - 1] >= end:
            positions[first:beyond] = _spaced(slot[first:beyond], end)
    if positions.min() < start:
        raise OverflowError("more events of one entity in a cut than have a place")
    return positions


def _ranks_since(begins: NDArray[np.bool_]) -> NDArray[np.int64]:
    """How far each place is behind the last one where something begins."""
    places = np.arange(len(begins))
    ranked: NDArray[np.int64] = places - np.maximum.accumulate(np.where(begins, places, 0))
    return ranked


def _spaced(slot: NDArray[np.int64], end: int) -> NDArray[np.int64]:
    """One entity's positions where its slots are too small: they spill over to the next ones, and
    back into earlier ones where the cut ends."""
    steps = np.arange(len(slot)) * POSITION_STRIDE
    forward = np.maximum.accumulate(slot - steps) + steps
    spaced: NDArray[np.int64] = np.minimum(forward, end - len(slot) * POSITION_STRIDE + steps)
    return spaced


def _duplicates(
    events: pa.Table, keys: tuple[NDArray[np.int64], ...], known_ids: LedgerLookup
) -> NDArray[np.bool_]:
    marks = np.zeros(len(events), dtype=bool)
    judged = np.flatnonzero(pc.is_in(events["kind"], _LEDGERED).to_numpy())
    judged = judged[np.lexsort([key[judged] for key in keys])]
    encoded = events["event_id"].combine_chunks().take(pa.array(judged)).dictionary_encode()
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
