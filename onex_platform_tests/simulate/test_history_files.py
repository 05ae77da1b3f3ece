"""Histories in files: the same records, in the shape of Kafka's, whole or not at all."""

from __future__ import annotations

import base64
import json
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from onex_platform.base.errors import ConfigurationError
from onex_platform.simulate import history_files
from onex_platform.simulate.fleet import Fleet
from onex_platform.simulate.history_files import SCHEMA, write_file
from onex_platform.simulate.plan import FleetPlan
from onex_platform.simulate.profiles import PROFILES
from onex_platform_tests.support.played_records import moment, routes

PLAN = FleetPlan(
    nodes=30,
    duration=timedelta(hours=2),
    profile=PROFILES["stormy"],
    max_event_bytes=4096,
)

Row = dict[str, Any]


def _parquet_rows(path: Path) -> list[Row]:
    rows: list[Row] = pq.read_table(path).to_pylist()
    return rows


def _ndjson_rows(path: Path) -> list[Row]:
    return [_decoded(json.loads(line)) for line in path.read_text().splitlines()]


def _decoded(row: Row) -> Row:
    headers = row["headers"] and [
        header | {"value": base64.b64decode(header["value"])} for header in row["headers"]
    ]
    return row | {
        "key": base64.b64decode(row["key"]),
        "value": None if row["value"] is None else base64.b64decode(row["value"]),
        "timestamp": datetime.fromisoformat(row["timestamp"]),
        "headers": headers,
    }


@pytest.mark.parametrize(
    ("name", "rows_of"),
    [
        ("history.parquet", _parquet_rows),
        ("history.ndjson", _ndjson_rows),
        ("history.jsonl", _ndjson_rows),
    ],
)
def test_a_file_holds_the_records_of_the_fleet_in_the_shape_of_kafkas(
    tmp_path: Path, name: str, rows_of: Callable[[Path], list[Row]]
) -> None:
    summary = write_file(Fleet(PLAN, routes()), tmp_path / "new" / name)
    rows = rows_of(tmp_path / "new" / name)
    offsets: dict[tuple[str, int], list[int]] = defaultdict(list)
    for row, record in zip(rows, Fleet(PLAN, routes()), strict=True):
        assert list(row) == SCHEMA.names
        assert row["key"] == record.key
        assert row["value"] == record.value
        assert row["topic"] == record.topic
        assert row["partition"] == record.partition
        assert row["timestamp"] == moment(record.time_ms)
        assert row["timestampType"] == int(record.append_time)
        assert [(h["key"], h["value"]) for h in row["headers"] or []] == list(record.headers)
        assert row["headers"] != []
        offsets[row["topic"], row["partition"]].append(row["offset"])
    assert all(found == list(range(len(found))) for found in offsets.values())
    assert Counter(row["topic"] for row in rows) == summary.by_topic
    assert [path.name for path in (tmp_path / "new").iterdir()] == [name]


def test_a_file_is_written_in_groups_of_bounded_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_files, "ROWS_PER_GROUP", 1000)
    told: list[int] = []
    path = tmp_path / "history.parquet"
    plan = replace(PLAN, max_events=3500)
    write_file(Fleet(plan, routes()), path, lambda fleet: told.append(fleet.played))
    metadata = pq.read_metadata(path)
    sizes = [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)]
    assert sizes == [1000, 1000, 1000, 500]
    assert told == [1000, 2000, 3000, 3500]


def test_an_interrupted_history_leaves_no_file(tmp_path: Path) -> None:
    def interrupt(_fleet: Fleet) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_file(Fleet(PLAN, routes()), tmp_path / "history.parquet", interrupt)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_format_and_an_unwritable_place_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"history\.csv has no suffix"):
        write_file(Fleet(PLAN, routes()), tmp_path / "history.csv")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="can't be written"):
        write_file(Fleet(PLAN, routes()), tmp_path / "file" / "history.parquet")
