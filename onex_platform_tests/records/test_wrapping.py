"""What is published says who sent it, where it belongs in a trace, and how private it is."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import pytest

from onex_platform.base.errors import MissingTenantKeyError
from onex_platform.base.settings import Settings
from onex_platform.domain import headers as h
from onex_platform.records.key_folder import KeyFolder
from onex_platform.records.signing import trusted_signers
from onex_platform.records.wrapping import Wrapper
from onex_platform_tests.support.key_folders import filled, with_keys

EVENT_ID, CORRELATION_ID = UUID(int=7 << 64), UUID(int=9)
EVENT = {
    "event_id": str(EVENT_ID),
    "source": "onex-platform",
    "correlation_id": str(CORRELATION_ID),
    "tenant": "acme",
    "schema_version": 2,
    "payload": {"email": "ada@example.org", "size": 3},
}
ENVELOPE = json.dumps(EVENT)
TRACE = h.Trace("a" * 32, "b" * 16)


def test_a_record_carries_all_headers_and_repeats_them() -> None:
    wrapper = Wrapper(Settings())
    record = wrapper.wrap(h.PublishRules("topic"), "key", ENVELOPE)
    assert record == wrapper.wrap(h.PublishRules("topic"), "key", ENVELOPE)
    assert dict(record.headers) == {
        "x-schema-version": "2",
        "x-correlation-id": str(CORRELATION_ID),
        "x-trace-id": CORRELATION_ID.hex,
        "x-actor": "onex-platform",
        "x-tenant": "acme",
        "x-scope": "platform",
        "x-origin": "dev/onex-platform",
        "x-encryption-scheme": "none",
        "x-pii-level": "none",
        "x-region": "local",
        "traceparent": f"00-{CORRELATION_ID.hex}-{7:016x}-01",
    }
    assert len(record.headers) == len(dict(record.headers))


def test_a_trace_goes_on() -> None:
    record = Wrapper(Settings()).wrap(h.PublishRules("topic"), "key", ENVELOPE, trace=TRACE)
    headers = dict(record.headers)
    assert headers[h.TRACE_ID] == TRACE.trace_id
    assert h.parse_traceparent(str(headers[h.TRACEPARENT])) == (TRACE.trace_id, f"{7:016x}")


@pytest.mark.parametrize("value", [ENVELOPE.encode(), b"no envelope"])
def test_somebody_elses_headers_stay_and_are_completed(value: bytes) -> None:
    given = [("traceparent", str(TRACE)), ("x-scope", "theirs"), ("other", "1")]
    completed = Wrapper(Settings()).completed(given, value, "e-1")
    assert completed[:3] == given
    headers = dict(completed)
    assert (headers[h.SCOPE], headers[h.TRACE_ID]) == ("theirs", TRACE.trace_id)
    assert headers[h.TRACEPARENT] == str(TRACE)
    assert headers[h.REGION] == "local"
    assert (headers.get(h.ACTOR) is None) == (value == b"no envelope")


@pytest.mark.parametrize("value", [ENVELOPE.encode(), b"no envelope"])
def test_a_malformed_trace_is_followed_by_a_new_one(value: bytes) -> None:
    completed = Wrapper(Settings()).completed([("traceparent", "00-nonsense")], value, "e-1")
    last = dict(completed)[h.TRACEPARENT]
    assert h.parse_traceparent(str(last)) is not None


def test_a_signed_topic_gets_signatures_that_are_taken(tmp_path: Path) -> None:
    settings = with_keys(tmp_path)
    filled(settings, actors=("onex-platform",))
    record = Wrapper(settings).wrap(h.PublishRules("topic", signed=True), "key", ENVELOPE)
    headers = [(name, str(value).encode()) for name, value in record.headers]
    trusted_signers(settings).require_signed("topic", b"key", ENVELOPE.encode(), headers)


def test_high_fields_leave_sealed_and_telemetry_without_them(tmp_path: Path) -> None:
    settings = with_keys(tmp_path)
    filled(settings, tenants=("acme",))
    rules = h.PublishRules("topic", {"payload.email": "high"})
    record = Wrapper(settings).wrap(rules, "key", ENVELOPE)
    assert "ada@" not in str(record)
    headers = dict(record.headers)
    assert headers[h.ENCRYPTION_SCHEME] == "tink-aes256-gcm"
    assert headers[h.PII_LEVEL] == "high"
    watched = h.PublishRules("topic", {"payload.email": "high"}, telemetry=True)
    told = json.loads(str(Wrapper(Settings()).wrap(watched, "key", ENVELOPE).value))
    assert told["payload"] == {"email": "***", "size": 3}


def test_after_its_key_a_tenant_publishes_without_its_private_values(tmp_path: Path) -> None:
    settings = with_keys(tmp_path)
    filled(settings, tenants=("acme",))
    rules, wrapper = h.PublishRules("topic", {"payload.email": "high"}), Wrapper(settings)
    assert "sealed:" in str(wrapper.wrap(rules, "key", ENVELOPE).value)
    KeyFolder(settings).destroy("acme")
    told = json.loads(str(wrapper.wrap(rules, "key", ENVELOPE).value))
    assert told == EVENT | {"payload": {"email": "***", "size": 3}}


def test_a_tenant_without_a_key_is_named_with_the_way_out(tmp_path: Path) -> None:
    settings = with_keys(tmp_path)
    filled(settings)
    rules = h.PublishRules("topic", {"payload.email": "high"})
    with pytest.raises(MissingTenantKeyError, match=r"'acme' .*`onex keys make --tenant acme`"):
        Wrapper(settings).wrap(rules, "key", ENVELOPE)
