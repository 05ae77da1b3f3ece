"""A signature holds topic, key, actor, tenant, scope and value together."""

from __future__ import annotations

import base64
import binascii
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onex_platform.base.settings import Settings
from onex_platform.domain import headers as h
from onex_platform.domain.envelope import EnumParkReason, Unreadable
from onex_platform.engines.kafka.clients import KafkaRecord
from onex_platform.records.key_folder import SIGNING, KeyFolder
from onex_platform.records.signing import Signer, trusted_signers
from onex_platform_tests.support.key_folders import filled, with_keys

ACTOR = "onex-platform"
PLAIN = KafkaRecord(
    "topic",
    '{"event_id": "1"}',
    "key",
    [(h.ACTOR, ACTOR), (h.TENANT, "acme"), (h.SCOPE, "platform"), (h.REGION, "local")],
)


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    chosen = with_keys(tmp_path_factory.mktemp("signing"))
    filled(chosen, actors=(ACTOR, "node/b"))
    return chosen


def sign(chosen: Settings, record: KafkaRecord = PLAIN, actor: str = ACTOR) -> KafkaRecord:
    return Signer(KeyFolder(chosen), actor).sign(record)


def verdict(chosen: Settings, record: KafkaRecord) -> EnumParkReason | None:
    """Why the record is parked; None if it is taken."""
    headers = [(name, as_bytes(value)) for name, value in record.headers]
    key, value = as_bytes(record.key), as_bytes(record.value)
    try:
        trusted_signers(chosen).require_signed(record.topic, key, value or b"", headers)
    except Unreadable as unreadable:
        return unreadable.reason
    return None


def as_bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def with_header(record: KafkaRecord, name: str, value: str | bytes | None) -> KafkaRecord:
    return record._replace(headers=[*record.headers, (name, value)])


def test_a_signed_record_is_taken_and_a_copy_elsewhere_is_not(known: Settings) -> None:
    signed = sign(known)
    assert verdict(known, signed) is None
    assert verdict(known, signed._replace(topic="another")) is EnumParkReason.BAD_SIGNATURE
    assert verdict(known, signed._replace(key=None)) is EnumParkReason.BAD_SIGNATURE


def test_headers_that_are_not_signed_may_change(known: Settings) -> None:
    assert verdict(known, with_header(sign(known), h.REGION, "elsewhere")) is None


def test_unsigned_records_are_told_apart(known: Settings) -> None:
    assert verdict(known, PLAIN) is EnumParkReason.UNSIGNED
    signed = sign(known)
    for name in (h.PAYLOAD_SHA256, h.SIGNATURE_ALGORITHM, h.SIGNATURE, h.ACTOR):
        assert verdict(known, with_header(signed, name, "")) is EnumParkReason.UNSIGNED


def test_a_trusted_key_speaks_for_its_own_actor_only(known: Settings) -> None:
    assert verdict(known, sign(known, actor="node/b")) is EnumParkReason.UNKNOWN_KEY
    stranger = PLAIN._replace(headers=[(h.ACTOR, "stranger"), *PLAIN.headers[1:]])
    assert verdict(known, sign(known, stranger)) is EnumParkReason.UNKNOWN_KEY


def test_an_unknown_algorithm_is_refused(known: Settings) -> None:
    other = with_header(sign(known), h.SIGNATURE_ALGORITHM, "none")
    assert verdict(known, other) is EnumParkReason.BAD_SIGNATURE


def test_a_rotated_key_leaves_old_signatures_good(tmp_path: Path) -> None:
    chosen = with_keys(tmp_path)
    filled(chosen, actors=(ACTOR,))
    before = sign(chosen)
    KeyFolder(chosen).rotate(SIGNING, ACTOR)
    after = sign(chosen)
    assert dict(before.headers)[h.SIGNATURE] != dict(after.headers)[h.SIGNATURE]
    assert verdict(chosen, before) is verdict(chosen, after) is None


@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_no_bit_of_value_key_or_signed_header_can_be_flipped(
    known: Settings, data: st.DataObject
) -> None:
    signed = sign(known)
    spots = ["value", "key", h.ACTOR, h.TENANT, h.SCOPE, h.PAYLOAD_SHA256, h.SIGNATURE]
    spot = data.draw(st.sampled_from(spots))
    fields = {"value": signed.value, "key": signed.key, **dict(signed.headers)}
    spoilt = bytearray(as_bytes(fields[spot]) or b"")
    spoilt[data.draw(st.integers(0, len(spoilt) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    if spot in ("value", "key"):
        changed = signed._replace(**{spot: bytes(spoilt)})
    else:
        changed = with_header(signed, spot, bytes(spoilt))
    # Base64 ignores the last bits of its last letter; then nothing was altered.
    same = spot == h.SIGNATURE and _decoded(bytes(spoilt)) == _decoded(as_bytes(fields[spot]))
    assert (verdict(known, changed) is None) == same


def _decoded(text: bytes | None) -> bytes | None:
    try:
        return base64.b64decode(text or b"", validate=True)
    except binascii.Error:
        return None
