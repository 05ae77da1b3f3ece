"""One suite for every page format and compression."""

from __future__ import annotations

import gzip
import subprocess
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onex_platform.base.errors import ConfigurationError
from onex_platform.capture.api.messages import page_messages
from onex_platform.capture.codecs import FORMATS, page_codec, read_page
from onex_platform.capture.codecs.compression import COMPRESSIONS
from onex_platform.capture.errors import PageFormatError
from onex_platform.capture.slots import PageCodec
from onex_platform_tests.support.captured_pages import captured, events_of, info_of, infos
from onex_platform_tests.support.kept_files import kept_files

# Pages of every version that was ever released; they stay readable for ever.
RELEASED = kept_files(Path(__file__).with_name("released.json"))
KINDS = [(format, compression) for format in FORMATS for compression in COMPRESSIONS]
SOME = events_of("a", range(1, 4)) + events_of("b", range(7, 9))


@pytest.fixture(scope="module", params=KINDS, ids="-".join)
def codec(request: pytest.FixtureRequest) -> PageCodec:
    return page_codec(*request.param)


@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_what_was_encoded_is_decoded(codec: PageCodec, data: st.DataObject) -> None:
    events = data.draw(captured())
    info = data.draw(infos(events))
    page = codec.encode(info, events)
    assert page.data == codec.encode(info, events).data, "a page that is written again is the same"
    assert page.info == replace(
        info,
        format=codec.format,
        compression=codec.compression,
        page_size_bytes=page.info.page_size_bytes,
    )
    assert page.info.page_size_bytes > 0
    for decoded in (codec.decode(page.data), read_page(page.data)):
        assert decoded.info == page.info
        assert decoded.events == tuple(replace(event, tenant=info.tenant) for event in events)


@given(data=st.data())
@settings(max_examples=50, deadline=None)
def test_a_page_that_is_cut_short_is_refused(codec: PageCodec, data: st.DataObject) -> None:
    page = codec.encode(info_of(SOME, page_id="cut"), SOME).data
    with pytest.raises(PageFormatError):
        codec.decode(page[: data.draw(st.integers(0, len(page) - 1))])


def test_a_page_that_lacks_an_event_is_refused(codec: PageCodec) -> None:
    page = codec.encode(info_of(SOME), SOME[:-1])
    with pytest.raises(PageFormatError, match="holds 4 events instead of 5"):
        codec.decode(page.data)


def test_a_newer_version_is_refused_by_name(codec: PageCodec) -> None:
    page = codec.encode(replace(info_of(SOME), format_version="v2"), SOME)
    with pytest.raises(PageFormatError, match="is v2; this release reads up to v1"):
        codec.decode(page.data)


def test_bytes_that_are_no_page_are_refused(codec: PageCodec) -> None:
    with pytest.raises(PageFormatError):
        codec.decode(COMPRESSIONS[codec.compression].pack(b"<Error>SlowDown</Error>"))


def test_events_lose_their_attributes_if_metadata_is_not_wanted(codec: PageCodec) -> None:
    events = events_of("a", [1], attributes={"type": "login"})
    bare = page_codec(codec.format, codec.compression, include_metadata=False)
    [event] = bare.decode(bare.encode(info_of(events), events).data).events
    assert event == replace(events[0], attributes={})


def test_released_pages_stay_readable(codec: PageCodec) -> None:
    kind = f"-{codec.compression}.{codec.extension}"
    pages = [page for name, page in RELEASED.items() if name.endswith(kind)]
    assert [read_page(page).events for page in pages] == [tuple(SOME)]


def test_an_unknown_format_or_compression_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"page\.format is 'avro'"):
        page_codec("avro", "gzip")
    with pytest.raises(ConfigurationError, match=r"page\.compression is 'lz4'"):
        page_codec("protobuf", "lz4")


def test_protobuf_pages_are_001s_event_page() -> None:
    page = page_messages().EventPage.FromString(
        page_codec("protobuf", "none").encode(info_of(SOME[:3]), SOME[:3]).data
    )
    assert page.metadata.writer_id == "a"
    assert [event.sequence for event in page.events] == [1, 2, 3]


def test_ndjson_pages_are_read_line_by_line_by_other_tools(tmp_path: Path) -> None:
    file = tmp_path / "page.ndjson.gz"
    file.write_bytes(page_codec("ndjson", "gzip").encode(info_of(SOME), SOME).data)
    lines = gzip.decompress(file.read_bytes()).splitlines()
    assert lines[0].startswith(b'{"metadata":{')
    assert len(lines) == 1 + len(SOME)
    assert subprocess.check_output(["gzip", "-dc", str(file)]).splitlines() == lines


def test_parquet_pages_are_tables(tmp_path: Path) -> None:
    file = tmp_path / "page.parquet"
    file.write_bytes(page_codec("parquet", "zstd").encode(info_of(SOME), SOME).data)
    assert pq.read_table(file).column("writer_id").to_pylist() == ["a"] * 3 + ["b"] * 2
