"""Metadata keeps its meaning as JSON and on objects."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from onex_platform.capture.captured_events import PageEntry
from onex_platform.capture.flush.page_json import (
    decode_entry,
    encode_entry,
    entry_from_attributes,
    info_to_attributes,
)
from onex_platform_tests.support.captured_pages import captured, event, info_of, infos


@given(st.data())
def test_metadata_survives_on_objects_and_in_indexes(data: st.DataObject) -> None:
    info = data.draw(infos(data.draw(captured())))
    attributes = info_to_attributes(info, "c" * 64)
    for text in (*attributes, *attributes.values()):
        assert text.isascii()
        assert text.isprintable()
        assert " " not in text
    assert sum(map(len, (*attributes, *attributes.values()))) < 2048
    entry = PageEntry(info, "key", 10, "c" * 64)
    assert entry_from_attributes("key", 10, attributes) in (entry, None)
    assert decode_entry(encode_entry(entry)) == entry


def test_what_has_no_room_on_an_object_is_left_to_the_page() -> None:
    crowd = [event(f"writer-{number:04}", 1) for number in range(500)]
    attributes = info_to_attributes(info_of(crowd), "c" * 64)
    assert "writers" not in attributes
    assert attributes["event_count"] == "500"
    assert entry_from_attributes("key", 10, attributes) is None
    few = info_of(crowd[:5])
    assert entry_from_attributes("key", 10, info_to_attributes(few, "c" * 64)) == PageEntry(
        few, "key", 10, "c" * 64
    )


def test_an_object_of_somebody_else_has_no_metadata() -> None:
    assert entry_from_attributes("key", 10, {}) is None
    assert entry_from_attributes("key", 10, {"owner": "somebody"}) is None
