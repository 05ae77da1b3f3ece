"""Dead letters as records: whatever their senders wrote, they fit."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onex_platform.base.settings import Settings
from onex_platform.domain.events import EnumEventKind
from onex_platform.ingest.letters.letter_topics import to_record
from onex_platform.ingest.letters.parked_letters import EnumLetterState, Letter, LetterId
from onex_platform.records.wrapping import Wrapper
from onex_platform.topics.catalogue import load_catalogue, load_whole_catalogue
from onex_platform_tests.support.events import at

SOURCE = load_catalogue().for_kind(EnumEventKind.NODE_HEARTBEAT)
REQUIRED = set(load_whole_catalogue()[SOURCE.dead_letters or ""].headers.required)
WRAPPER = Wrapper(Settings())
SIZES = st.one_of(st.none(), st.sampled_from([0, 1, 400_000, 899_990, 900_001, 3_000_000]))


def letter(**fields: Any) -> Letter:
    return Letter(
        **{
            "id": LetterId(SOURCE.topic, 0, 0, 7),
            "kind": EnumEventKind.NODE_HEARTBEAT,
            "reason": "not_json",
            "detail": "it is odd",
            "record_timestamp": at(0),
            "append_time": True,
            "legacy": False,
            "key": None,
            "value": None,
            "headers": (),
            "parked_at": at(1),
            "state": EnumLetterState.WAITING,
            "event_id": None,
            "settled_at": None,
            "settled_by": None,
            "settled_because": None,
            "published_at": None,
        }
        | fields
    )


def size(key: Any, value: Any, headers: Any) -> int:
    """As clients count it."""
    lengths = [len(name) + len(content or "") + 10 for name, content in headers]
    return len(key or b"") + len(value or b"") + sum(lengths)


@settings(max_examples=40)
@example(1, 1, 1, 100_000)
@given(SIZES, SIZES, SIZES, st.sampled_from([0, 3]))
def test_a_letter_fits_into_a_record_and_says_what_stayed_behind(
    key: int | None, value: int | None, header: int | None, empty: int
) -> None:
    def content(length: int | None) -> bytes | None:
        return None if length is None else b"x" * length

    theirs = (("x-actor", content(header)), *[("", b"")] * empty)
    whole = letter(key=content(key), value=content(value), headers=theirs)
    record = to_record(whole, "dlt", WRAPPER)
    assert size(record.key, record.value, record.headers) < 910_000
    told = dict(record.headers)
    assert told.keys() >= REQUIRED
    left = [("value", record.value), ("key", record.key)]
    gone = sum(len(getattr(whole, name) or b"") for name, now in left if now is None)
    if ("x-actor", content(header)) not in record.headers:
        gone += len("x-actor") + (header or 0)
    assert int(str(told.get("x-omitted-bytes", 0))) == gone


@pytest.mark.parametrize(
    ("sizes", "kept"),
    [
        ((10, 10, 10), (True, True, True)),
        ((10, 900_000, 10), (True, False, True)),
        ((10, 10, 900_000), (True, False, False)),
        ((900_001, 10, 10), (False, False, False)),
        # Each would fit alone.
        ((400_000, 400_000, 400_000), (True, False, True)),
    ],
)
def test_the_value_stays_behind_first_and_the_key_last(
    sizes: tuple[int, int, int], kept: tuple[bool, bool, bool]
) -> None:
    key, value, header = (b"x" * length for length in sizes)
    record = to_record(letter(key=key, value=value, headers=(("a", header),)), "dlt", WRAPPER)
    found = (record.key == key, record.value == value, ("a", header) in record.headers)
    assert found == kept
