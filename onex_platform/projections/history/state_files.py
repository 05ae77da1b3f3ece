"""A state of the registry as files in the page store: Parquet, a row group per bucket.

A file is named by its content: writing the same state again finds the file there already, and a
crash leaves a file that the next attempt uses.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict

from onex_platform.domain.identity import CANARY_ID
from onex_platform.log.page_format import checksum_of
from onex_platform.log.store import PageExistsError, PageStore
from onex_platform.projections.fold.row_columns import STATE_SCHEMA

_NAME_DIGITS = 32
_CANARY = pa.scalar(CANARY_ID.bytes, STATE_SCHEMA.field("entity_id").type)


class StateGroup(NamedTuple):
    """What one row group of a state file holds; the canary is no node that anybody counts."""

    bucket: int
    nodes: int


class StateFile(BaseModel):
    """A part of a state and where it lies."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str
    checksum: str
    encoded_bytes: int
    groups: tuple[StateGroup, ...]

    @property
    def nodes(self) -> int:
        return sum(group.nodes for group in self.groups)


class StoredState(NamedTuple):
    """What the log below `position` amounts to, but for nodes that could not be folded."""

    position: int
    nodes: int
    files: tuple[StateFile, ...]
    set_aside: frozenset[UUID] = frozenset()


THE_BEGINNING = StoredState(0, 0, ())


def write_state(
    store: PageStore,
    prefix: str,
    buckets: Iterable[tuple[int, pa.Table]],
) -> StateFile | None:
    """Store the rows of some buckets as one file; None if there are none."""
    buffer = io.BytesIO()
    groups = []
    with pq.ParquetWriter(buffer, STATE_SCHEMA, compression="zstd") as writer:
        for bucket, table in buckets:
            if len(table):
                writer.write_table(table, row_group_size=len(table))
                shown = pc.sum(pc.not_equal(table["entity_id"], _CANARY)).as_py()
                groups.append(StateGroup(bucket, shown))
    if not groups:
        return None
    data = buffer.getvalue()
    checksum = checksum_of(data)
    key = f"{prefix}/{checksum[:_NAME_DIGITS]}.parquet"
    _store(store, key, data, checksum)
    return StateFile(key=key, checksum=checksum, encoded_bytes=len(data), groups=tuple(groups))


def read_state(store: PageStore, files: Iterable[StateFile], bucket: int) -> pa.Table:
    """One bucket's rows."""
    tables = [STATE_SCHEMA.empty_table()]
    for file in files:
        chosen = [n for n, group in enumerate(file.groups) if group.bucket == bucket]
        if chosen:
            with store.open(file.key) as source:
                tables.append(pq.ParquetFile(source).read_row_groups(chosen))
    return pa.concat_tables(tables)


def _store(store: PageStore, key: str, data: bytes, checksum: str) -> None:
    try:
        store.create(key, data)
    except PageExistsError:
        if checksum_of(store.read(key)) != checksum:  # damaged since; its name says what it was
            store.delete(key)
            store.create(key, data)
