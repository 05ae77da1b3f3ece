"""Columns go into PostgreSQL and come out of it as they were, whatever their texts hold."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import pyarrow as pa
import pytest

from onex_platform.base.settings import Settings
from onex_platform.engines.postgres.columns import copy_table, id_texts, read_table
from onex_platform.engines.postgres.database import open_database

ODD = ["", None, "NULL", "\\N", "\\.", "a\n\\.\nb", 'q"u""o', "a,b;\tc\r\n", "節 \u2028", " x "]
IDS = [UUID(int=number << 96 | 0xABC) for number in range(len(ODD) - 1)]
MOMENTS = [
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(2026, 3, 1, 12, 0, 0, 1, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
]
ROWS = pa.table(
    {
        "id": pa.array([None, *(item.bytes for item in IDS)], pa.binary()),
        "short": pa.array([*(item.bytes for item in IDS), None], pa.binary(16)),
        "name": pa.array(ODD, pa.string()),
        "number": pa.array([None, -1, 2**63 - 1, *range(len(ODD) - 3)], pa.int64()),
        "moment": pa.array(
            [*MOMENTS, *[None] * (len(ODD) - len(MOMENTS))], pa.timestamp("us", tz="UTC")
        ),
    }
)


@pytest.mark.servers
def test_every_value_comes_back_as_it_was(database_settings: Settings) -> None:
    with open_database(database_settings) as database, database.transaction() as cursor:
        cursor.execute(
            "CREATE TEMPORARY TABLE odd"
            " (id uuid, short uuid, name text, number bigint, moment timestamptz, place serial)"
        )
        assert copy_table(cursor, "odd", ROWS.slice(0, 0)) == 0
        assert copy_table(cursor, "odd", ROWS) == len(ROWS)
        query = (
            "SELECT id, short, name, number, moment FROM odd WHERE place <= %(most)s ORDER BY place"
        )
        assert read_table(cursor, query, {"most": len(ROWS)}, ROWS.schema) == ROWS
        assert read_table(cursor, query, {"most": 0}, ROWS.schema) == ROWS.slice(0, 0)


def test_ids_are_spelled_as_uuids_are() -> None:
    assert id_texts(ROWS["id"].combine_chunks()).to_pylist() == [None, *map(str, IDS)]
    assert id_texts(ROWS["short"].combine_chunks()).to_pylist() == [*map(str, IDS), None]
