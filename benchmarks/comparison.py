"""Rows of two contestants, compared cell by cell."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from onex_platform.domain.payloads import ModelNodeCapabilities
from onex_platform.projections.fold.row_columns import STATE_SCHEMA


def canonical(rows: pa.Table, domain: str) -> pa.Table:
    """Polars' rows as the registry spells them: its JSON is the sender's, ours is the model's."""
    columns = {name: rows[name] for name in rows.column_names}
    columns["domain"] = pa.array([domain] * len(rows), pa.string())
    for name in ("capabilities", "endpoints", "metadata"):
        columns[name] = pa.array([_respelled(name, text) for text in rows[name].to_pylist()])
    return pa.table(
        [columns[field.name].cast(field.type) for field in STATE_SCHEMA], schema=STATE_SCHEMA
    )


def _respelled(name: str, text: str | None) -> str:
    value = json.loads(text or "{}")
    if name == "capabilities":
        return ModelNodeCapabilities.model_validate(value).model_dump_json()
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def differing_cells(*files: Path) -> int:
    """In how many cells two contestants differ; a row that one lacks counts whole."""
    tables = [pq.read_table(file) for file in files]
    if len(tables[0]) != len(tables[1]):
        return abs(len(tables[0]) - len(tables[1])) * len(STATE_SCHEMA)
    differing = 0
    for name in STATE_SCHEMA.names:
        left, right = (table[name].combine_chunks() for table in tables)
        if name in ("capabilities", "endpoints", "metadata"):
            left, right = (
                pa.array([json.dumps(json.loads(t), sort_keys=True) for t in side.to_pylist()])
                for side in (left, right)
            )
        same = pc.or_(
            pc.fill_null(pc.equal(left, right), False),
            pc.and_(pc.is_null(left), pc.is_null(right)),
        )
        differing += pc.sum(pc.invert(same)).as_py() or 0
    return differing
