"""Arrow tables into PostgreSQL and out of it, by COPY: no value becomes an object of Python.

Both sides speak CSV. Quotes tell an empty text from a missing value. A binary column holds UUIDs.
"""

from __future__ import annotations

import io
from binascii import unhexlify
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql
from pyarrow import csv

from onex_platform.engines.postgres.database import Cursor

_ID_BYTES, _ID_LETTERS = 16, 36
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
# Where a UUID's digits stand in its canonical spelling.
_DIGITS = np.array([place for place in range(_ID_LETTERS) if place not in (8, 13, 18, 23)])
_ROWS_AT_ONCE = 1 << 14
_QUOTED = csv.WriteOptions(include_header=False, quoting_style="all_valid")


def copy_table(cursor: Cursor, table: str, rows: pa.Table) -> int:
    """COPY rows into the table's columns of the same names; how many there were."""
    if not len(rows):
        return 0
    statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(
        sql.Identifier(table), sql.SQL(", ").join(map(sql.Identifier, rows.column_names))
    )
    with cursor.copy(statement) as copy:
        for batch in rows.to_batches(_ROWS_AT_ONCE):
            spelled = [id_texts(column) if _is_id(column.type) else column for column in batch]
            text = io.BytesIO()
            csv.write_csv(pa.record_batch(spelled, names=rows.column_names), text, _QUOTED)
            copy.write(text.getbuffer())
    return cursor.rowcount


def read_table(
    cursor: Cursor, query: str, parameters: Mapping[str, Any], schema: pa.Schema
) -> pa.Table:
    """The rows of a query, whose columns are those of the schema in its order."""
    text = io.BytesIO()
    with cursor.copy(f"COPY ({query}) TO STDOUT (FORMAT csv)", parameters) as copy:
        for block in copy:
            text.write(block)
    if not text.tell():
        return schema.empty_table()
    text.seek(0)
    types = {field.name: pa.string() if _is_id(field.type) else field.type for field in schema}
    spelled = csv.read_csv(
        text,
        csv.ReadOptions(column_names=schema.names),
        csv.ParseOptions(newlines_in_values=True),
        csv.ConvertOptions(
            column_types=types,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    columns = [
        _ids(column.combine_chunks()).cast(field.type) if _is_id(field.type) else column
        for field, column in zip(schema, spelled.columns, strict=True)
    ]
    return pa.table(columns, schema=schema)


def id_texts(ids: pa.Array) -> pa.Array:
    """UUIDs in canonical spelling."""
    data = b"".join(ids.fill_null(bytes(_ID_BYTES)).to_pylist())
    codes = np.frombuffer(data, np.uint8).reshape(-1, _ID_BYTES)
    texts = np.full((len(ids), _ID_LETTERS), ord("-"), np.uint8)
    texts[:, _DIGITS[0::2]] = _HEX[codes >> 4]
    texts[:, _DIGITS[1::2]] = _HEX[codes & 15]
    bounds = np.arange(0, _ID_LETTERS * len(ids) + 1, _ID_LETTERS, dtype=np.int32)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(texts)]
    return _where_valid(ids, pa.Array.from_buffers(pa.string(), len(ids), buffers))


def _ids(texts: pa.Array) -> pa.Array:
    digits = pc.replace_substring(texts.fill_null("0" * 2 * _ID_BYTES), "-", "")
    data = unhexlify("".join(digits.to_pylist()))
    width = pa.binary(_ID_BYTES)
    ids = pa.FixedSizeBinaryArray.from_buffers(width, len(texts), [None, pa.py_buffer(data)])
    return _where_valid(texts, ids)


def _where_valid(given: pa.Array, made: pa.Array) -> pa.Array:
    return (
        pc.if_else(given.is_valid(), made, pa.scalar(None, made.type)) if given.null_count else made
    )


def _is_id(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind))
