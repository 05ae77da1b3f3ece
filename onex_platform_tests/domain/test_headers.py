"""Headers are read as others may send them: twice, broken, too long, and traces of any kind."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onex_platform.domain.headers import (
    MOST_BYTES,
    EnumHeaderFinding,
    EnumOnRead,
    HeaderRules,
    Trace,
    findings,
    parse_traceparent,
    text_of,
    trace_of,
)


def _hex(digits: int) -> st.SearchStrategy[str]:
    """As many digits, mostly; sometimes too many, all the same, or no digit at all."""
    right = st.text("0123456789abcdef", min_size=digits, max_size=digits)
    wrong = st.sampled_from(["0" * digits, "f" * digits, "a" * (digits + 1), "G" * digits])
    return right | right | wrong


_RULES = HeaderRules(EnumOnRead.COUNT, ("x-actor", "x-scope"), "node_id")
_GOOD = [("x-actor", b"node/a"), ("x-scope", b"s")]


def found(headers: list[tuple[str, bytes | None]], key: bytes | None = b"n") -> set[str]:
    return {kind for kind, _ in findings(headers, _RULES, source="node/a", key=key, keyed="n")}


def test_of_two_headers_the_last_counts() -> None:
    assert text_of([("a", b"1"), ("b", b"2"), ("a", b"3")], "a") == "3"
    assert text_of([("a", b"1"), ("a", b"\xff")], "a") is None
    assert found([("x-actor", b"somebody"), *_GOOD]) == set()


@pytest.mark.parametrize("value", [b"\xff", b"x" * (MOST_BYTES + 1)])
def test_a_header_that_can_not_be_read_is_absent_and_counted(value: bytes) -> None:
    assert text_of([("x-scope", value)], "x-scope") is None
    assert found([*_GOOD, ("x-scope", value)]) == {
        EnumHeaderFinding.MISSING,
        EnumHeaderFinding.UNREADABLE,
    }
    assert found([*_GOOD, ("x-tenant", value)]) == {EnumHeaderFinding.UNREADABLE}


def test_an_actor_that_is_not_the_source_and_a_key_that_is_not_the_field_are_found() -> None:
    assert found([*_GOOD, ("x-actor", b"node/b")]) == {EnumHeaderFinding.ACTOR}
    assert found(_GOOD, key=b"m") == found(_GOOD, key=None) == {EnumHeaderFinding.KEY}


def test_nothing_is_found_where_the_contract_ignores() -> None:
    rules = HeaderRules(EnumOnRead.IGNORE, ("x-actor",), "node_id")
    assert not list(findings([], rules, source="", key=None, keyed=None))


@given(
    version=st.sampled_from(["00", "01", "ff", "0"]),
    trace=_hex(32),
    span=_hex(16),
    flags=_hex(2),
    more=st.sampled_from(["", "", "-x", " "]),
)
def test_a_traceparent_is_what_w3c_says_or_none(
    version: str, trace: str, span: str, flags: str, more: str
) -> None:
    text = f"{version}-{trace}-{span}-{flags}{more}"
    right = (
        [len(version), len(trace), len(span), len(flags)] == [2, 32, 16, 2]
        and "G" not in text
        and version != "ff"
        and set(trace) != {"0"} != set(span)
        and not (version == "00" and more == "-x")
    )
    assert parse_traceparent(text) == (Trace(trace, span) if right else None)


@given(trace=st.integers(0, 2**128 - 1), span=st.integers(0, 2**64 - 1))
def test_a_trace_that_is_written_is_read(trace: int, span: int) -> None:
    written = Trace(f"{trace:032x}", f"{span:016x}")
    assert parse_traceparent(str(written)) == (written if trace and span else None)


@given(st.text() | st.none())
def test_no_text_stops_the_reader(text: str | None) -> None:
    assert parse_traceparent(text) is None


@given(correlation=st.uuids(version=4), event=st.uuids(version=5))
def test_an_event_always_begins_the_same_trace(correlation: UUID, event: UUID) -> None:
    trace = trace_of(correlation, event)
    assert trace == trace_of(correlation, event)
    assert parse_traceparent(str(trace)) == trace
