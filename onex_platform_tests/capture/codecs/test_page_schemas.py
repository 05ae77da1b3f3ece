"""Page schemas take what the codecs write, and nothing that they would not write."""

from __future__ import annotations

import io
import json

import avro.io
import avro.schema
import jsonschema_rs
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onex_platform.capture.codecs import FORMATS, page_codec
from onex_platform.capture.codecs.page_schemas import archive_schemas, page_schema
from onex_platform_tests.support.captured_pages import captured, events_of, info_of, infos

_LINE = jsonschema_rs.validator_for(json.loads(page_schema("x", "ndjson").text))


@given(data=st.data())
@settings(max_examples=50, deadline=None)
def test_every_line_of_an_ndjson_page_is_taken(data: st.DataObject) -> None:
    events = data.draw(captured())
    page = page_codec("ndjson", "none").encode(data.draw(infos(events)), events)
    for line in page.data.splitlines():
        _LINE.validate(json.loads(line))


@pytest.mark.parametrize(
    "change", [{"sequence": "1"}, {"unknown": 1}, {"payload": None}, {"metadata": {}}]
)
def test_a_line_that_no_page_has_is_not_taken(change: dict[str, object]) -> None:
    events = events_of("a", [1])
    page = page_codec("ndjson", "none").encode(info_of(events, page_id="p"), events)
    line = json.loads(page.data.splitlines()[1])
    assert not _LINE.is_valid(line | change)


def test_the_avro_schema_is_that_of_a_parquet_row() -> None:
    text = page_schema("x", "parquet").text
    schema, names = avro.schema.parse(text), [field["name"] for field in json.loads(text)["fields"]]
    events = events_of("a", range(1, 4))
    page = page_codec("parquet", "zstd").encode(info_of(events, page_id="p"), events)
    rows = pq.read_table(io.BytesIO(page.data)).to_pylist(maps_as_pydicts="strict")
    assert len(rows) == 3
    for row in rows:
        assert names == list(row)
        assert avro.io.validate(schema, row)


def test_an_archive_has_its_snapshotters_schema_and_that_of_merged_pages() -> None:
    subjects = {name: [schema.subject for schema in archive_schemas("x", name)] for name in FORMATS}
    assert subjects == {
        "protobuf": ["x-parquet", "x-protobuf"],
        "ndjson": ["x-ndjson", "x-parquet"],
        "parquet": ["x-parquet"],
    }
