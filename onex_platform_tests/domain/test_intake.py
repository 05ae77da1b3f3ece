"""Every record becomes an event or is parked with its reason; the broker's clock is the time."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onex_platform.domain.envelope import (
    PAYLOADS,
    EnumParkReason,
    UpcasterRegistry,
    parse_payload,
)
from onex_platform.domain.events import EnumEventKind, LogEvent
from onex_platform.domain.intake import Parked, RawRecord, admit
from onex_platform.domain.order import LIFECYCLE_RANK
from onex_platform_tests.support.events import NODE, RULES, at, number_id, record

Kind = EnumEventKind
Reason = EnumParkReason
READ_AT = at(1000)


def admitted(raw: RawRecord, **rules: Any) -> LogEvent:
    result = admit(raw, replace(RULES, **rules), READ_AT)
    assert isinstance(result, LogEvent), result
    return result


def parked(raw: RawRecord, reason: EnumParkReason, **rules: Any) -> str:
    result = admit(raw, replace(RULES, **rules), READ_AT)
    assert isinstance(result, Parked), result
    assert result.reason is reason
    assert result.record is raw, "the original bytes are kept"
    return result.detail


@pytest.mark.parametrize("kind", list(LIFECYCLE_RANK))
def test_the_smallest_valid_event_of_every_kind_is_admitted(kind: Kind) -> None:
    event = admitted(record(kind, 5, offset=7, partition=2))
    assert event.kind is kind
    assert event.occurred_at == at(5)
    assert event.provenance is not None
    assert (event.provenance.partition, event.provenance.offset) == (2, 7)


def test_every_kind_has_a_payload_model() -> None:
    assert set(PAYLOADS) == set(Kind)


@pytest.mark.parametrize("skew", [timedelta(days=400), -timedelta(days=400)])
def test_a_skewed_clock_neither_lengthens_nor_ends_a_life(skew: timedelta) -> None:
    reported = (at(5) + skew).isoformat()
    event = admitted(record(Kind.NODE_HEARTBEAT, 5, envelope={"timestamp": reported}))
    assert (event.occurred_at, event.deadline) == (at(5), at(95))
    assert event.reported_at == at(5) + skew


def test_a_producers_timestamp_is_bounded_by_the_time_of_reading() -> None:
    assert admitted(record(Kind.NODE_ACK, 5000, append_time=False)).occurred_at == READ_AT
    assert admitted(record(Kind.NODE_ACK, 5, append_time=False)).occurred_at == at(5)
    assert admitted(replace(record(Kind.NODE_ACK), timestamp=None)).occurred_at == READ_AT


def test_a_timeout_keeps_the_deadline_it_names_to_the_microsecond() -> None:
    deadline = at(30) + timedelta(microseconds=1)
    event = admitted(record(Kind.ACK_TIMED_OUT, 60, deadline=deadline.isoformat()))
    assert event.deadline == deadline


def test_unknown_fields_are_kept() -> None:
    event = admitted(record(Kind.NODE_INTROSPECTION, zebra={"stripes": 7}))
    assert event.payload.model_dump()["zebra"] == {"stripes": 7}


@pytest.mark.parametrize("legacy_type", ["node.introspection", "NODE_INTROSPECTION_EVENT"])
def test_a_legacy_event_reads_like_its_canonical_twin(legacy_type: str) -> None:
    canonical = admitted(record(Kind.NODE_INTROSPECTION, 5))
    legacy = admitted(
        record(Kind.NODE_INTROSPECTION, 5, legacy=True, envelope={"event_type": legacy_type})
    )
    assert legacy == canonical


@pytest.mark.parametrize(
    ("raw", "reason", "names"),
    [
        (replace(record(Kind.NODE_ACK), value=None), Reason.NO_VALUE, "payload"),
        (record(Kind.NODE_ACK, value=b"{"), Reason.NOT_JSON, "line 1"),
        (record(Kind.NODE_ACK, value=b"\xff\xfe"), Reason.NOT_JSON, ""),
        (record(Kind.NODE_ACK, value=b"[]"), Reason.BAD_ENVELOPE, "document=[]"),
        (record(Kind.NODE_ACK, value=b'{"payload": NaN}'), Reason.NOT_JSON, ""),
        (record(Kind.NODE_ACK, value=b"[" * 100_000), Reason.NOT_JSON, ""),
        (record(Kind.NODE_ACK, envelope={"event_id": "x"}), Reason.BAD_ENVELOPE, "event_id='x'"),
        (record(Kind.NODE_ACK, envelope={"payload": None}), Reason.BAD_ENVELOPE, "payload=None"),
        (
            record(Kind.NODE_ACK, envelope={"timestamp": "2026-03-01T12:00:00"}),
            Reason.BAD_ENVELOPE,
            "timestamp='2026-03-01T12:00:00'",
        ),
        (
            record(Kind.NODE_ACK, envelope={"event_type": "onex.node.unheard.of"}),
            Reason.UNKNOWN_EVENT_TYPE,
            "onex.node.unheard.of",
        ),
        (
            record(Kind.NODE_ACK, envelope={"event_type": Kind.NODE_HEARTBEAT.event_type}),
            Reason.WRONG_EVENT_TYPE,
            Kind.NODE_ACK.event_type,
        ),
        (
            record(Kind.NODE_ACK, envelope={"schema_version": 9}),
            Reason.UNKNOWN_VERSION,
            "schema_version 9",
        ),
        (record(Kind.NODE_ACK, node_id="x" * 300), Reason.BAD_NODE_ID, "300 characters"),
        (record(Kind.NODE_ACK, node_id=""), Reason.BAD_NODE_ID, "empty"),
        (record(Kind.NODE_ACK, node_id=7), Reason.BAD_PAYLOAD, "node_id=7"),
        (record(Kind.NODE_ACK, epoch=-1), Reason.BAD_PAYLOAD, "epoch=-1"),
        (record(Kind.NODE_ACK, epoch=True), Reason.BAD_PAYLOAD, "epoch=True"),
        (record(Kind.NODE_ACK, epoch=2**63), Reason.BAD_PAYLOAD, "epoch="),
        (record(Kind.NODE_INTROSPECTION, epoch=2**62 + 1), Reason.BAD_PAYLOAD, "at most 46116860"),
        (record(Kind.NODE_INTROSPECTION, node_type="WIZARD"), Reason.BAD_PAYLOAD, "WIZARD"),
        (record(Kind.NODE_INTROSPECTION, metadata={"a": "b\x00"}), Reason.BAD_PAYLOAD, "U+0000"),
        (record(Kind.NODE_ACK, value=b'{"a": [1e999]}'), Reason.BAD_PAYLOAD, "larger than"),
        (record(Kind.NODE_ACK, value=b"[" + b"1" * 400 + b".5]"), Reason.BAD_PAYLOAD, "larger"),
        (record(Kind.NODE_ACK, headers={"x-tenant": b"Bad Tenant"}), Reason.BAD_TENANT, "Bad"),
        (
            record(Kind.NODE_ACK, headers={"x-tenant": b"a"}, envelope={"tenant": "b"}),
            Reason.BAD_TENANT,
            "contradict",
        ),
        (
            record(Kind.REGISTRATION_FAILED, retry_eligible="maybe"),
            Reason.BAD_PAYLOAD,
            "retry_eligible='maybe'",
        ),
        (
            record(Kind.ACK_TIMED_OUT, deadline="2026-03-01T12:00:00"),
            Reason.BAD_PAYLOAD,
            "deadline=",
        ),
    ],
    ids=lambda value: value.value if isinstance(value, EnumParkReason) else "",
)
def test_what_can_not_be_read_is_parked_with_field_and_value(
    raw: RawRecord, reason: EnumParkReason, names: str
) -> None:
    assert names in parked(raw, reason)


def test_a_5_mb_payload_is_parked_without_being_parsed() -> None:
    raw = record(Kind.NODE_INTROSPECTION, metadata={"blob": "x" * 5_000_000})
    assert "1048576" in parked(raw, Reason.TOO_LARGE)


def test_of_many_broken_fields_the_first_few_are_told() -> None:
    raw = record(Kind.NODE_INTROSPECTION, endpoints=dict.fromkeys(map(str, range(50_000)), 1))
    detail = parked(raw, Reason.BAD_PAYLOAD)
    assert "endpoints.0=1" in detail
    assert detail.endswith("; and 49990 more")


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_a_time_outside_the_calendar_is_parked(moment: str) -> None:
    raw = record(Kind.NODE_ACK, envelope={"timestamp": moment})
    assert f"timestamp='{moment}'" in parked(raw, Reason.BAD_ENVELOPE)
    raw = record(Kind.ACK_TIMED_OUT, deadline=moment)
    assert f"deadline='{moment}'" in parked(raw, Reason.BAD_PAYLOAD)
    edge = moment[:-6] + "Z"
    event = admitted(record(Kind.ACK_TIMED_OUT, deadline=edge, envelope={"timestamp": edge}))
    assert event.deadline == event.reported_at


def test_the_tenant_comes_from_the_header_the_envelope_or_the_default() -> None:
    assert admitted(record(Kind.NODE_ACK)).tenant == "omnibase"
    assert admitted(record(Kind.NODE_ACK, envelope={"tenant": "acme"})).tenant == "acme"
    assert admitted(record(Kind.NODE_ACK, headers={"x-tenant": b"acme"})).tenant == "acme"


def test_one_plain_id_in_two_tenants_is_two_entities() -> None:
    mine = admitted(record(Kind.NODE_ACK, node_id="a", headers={"x-tenant": b"mine"}))
    yours = admitted(record(Kind.NODE_ACK, node_id="a", headers={"x-tenant": b"yours"}))
    assert mine.entity != yours.entity
    assert mine.node_name == yours.node_name == "a"


def test_an_event_from_before_the_ledgers_memory_is_parked_unless_it_is_a_heartbeat() -> None:
    old = {"timestamp": at(-100).isoformat()}
    assert "duplicate" in parked(
        record(Kind.NODE_ACK, 5, envelope=old), Reason.BEYOND_LEDGER, ledger_floor=at(-50)
    )
    admitted(record(Kind.NODE_HEARTBEAT, 5, envelope=old), ledger_floor=at(-50))
    admitted(record(Kind.NODE_ACK, 5), ledger_floor=at(-50))


def test_an_old_version_is_lifted_step_by_step() -> None:
    registry = UpcasterRegistry()
    registry.register(Kind.NODE_ACK, 1, lambda payload: {"node_id": payload["node"]})
    registry.register(Kind.NODE_ACK, 2, lambda payload: payload | {"lifted": True})
    first = parse_payload(Kind.NODE_ACK, {"node": str(NODE)}, 1, registry)
    newest = parse_payload(Kind.NODE_ACK, {"node_id": str(NODE)}, 3, registry)
    assert first.model_dump() == {"node_id": str(NODE), "epoch": None, "lifted": True}
    assert newest.model_dump() == {"node_id": str(NODE), "epoch": None}
    with pytest.raises(ValueError, match="already"):
        registry.register(Kind.NODE_ACK, 1, dict)


def test_what_was_parked_is_readable_after_the_upgrade() -> None:
    raw = record(Kind.NODE_ACK, envelope={"schema_version": 2})
    parked(raw, Reason.UNKNOWN_VERSION)
    registry = UpcasterRegistry()
    registry.register(Kind.NODE_ACK, 1, dict)
    assert admitted(raw, upcasters=registry).event_id == number_id(0)


@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_no_bytes_whatsoever_stop_the_intake(value: bytes) -> None:
    assert isinstance(admit(record(Kind.NODE_ACK, value=value), RULES, READ_AT), Parked)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)


@given(
    kind=st.sampled_from(list(LIFECYCLE_RANK)),
    field=st.sampled_from(["event_id", "timestamp", "tenant", "source", "schema_version"]),
    value=JSON,
    payload=st.dictionaries(
        st.sampled_from(["node_id", "node_type", "epoch", "capabilities", "endpoints", "deadline"]),
        JSON,
    ),
)
def test_no_field_whatsoever_stops_the_intake(
    kind: Kind, field: str, value: Any, payload: dict[str, Any]
) -> None:
    result = admit(record(kind, envelope={field: value}, **payload), RULES, READ_AT)
    assert isinstance(result, LogEvent | Parked)
    if isinstance(result, LogEvent):
        # What is let in can be stored: JSON without NaN, NUL or lone surrogates.
        text = result.payload.model_dump_json()
        assert "\\u0000" not in text
        json.loads(text, parse_constant=pytest.fail)
