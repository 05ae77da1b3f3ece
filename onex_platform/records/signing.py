"""Detached signatures: Ed25519 over topic, key, actor, tenant, scope and the value's hash.

Kafka tells no reader who wrote a record. A signature binds the headers that say so to the value and
to the place: whoever changes one of them, or copies the record to another topic, needs the key.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import tink
from tink import json_proto_keyset_format, signature

from onex_platform.base.settings import Settings
from onex_platform.domain import headers as h
from onex_platform.domain.envelope import EnumParkReason, Unreadable
from onex_platform.engines.kafka.clients import KafkaRecord
from onex_platform.records.key_folder import SIGNING, KeyFolder

ALGORITHM = "ed25519"
# Tink writes the key's id in front of a signature, behind one byte.
_KEY_ID = slice(1, 5)


class Signer:
    """Signs what one actor publishes."""

    def __init__(self, keys: KeyFolder, actor: str) -> None:
        self._sign = keys.read(SIGNING, actor).primitive(signature.PublicKeySign)

    def sign(self, record: KafkaRecord) -> KafkaRecord:
        """The record with the three headers of a signature."""
        value, key = _bytes(record.value) or b"", _bytes(record.key)
        digest = hashlib.sha256(value).hexdigest()
        headers = [(name, _bytes(text)) for name, text in record.headers]
        made = self._sign.sign(h.signed_text(record.topic, key, headers, digest))
        signed = [
            *record.headers,
            (h.PAYLOAD_SHA256, digest),
            (h.SIGNATURE_ALGORITHM, ALGORITHM),
            (h.SIGNATURE, base64.b64encode(made).decode()),
        ]
        return record._replace(headers=signed)


@dataclass(frozen=True, slots=True)
class TrustedSigners:
    """Whose signatures are taken: public keysets by actor. It travels to Spark's workers."""

    keysets: Mapping[str, str] = field(default_factory=dict)

    def require_signed(
        self, topic: str, key: bytes | None, value: bytes, headers: h.Headers
    ) -> None:
        """Raises `Unreadable` unless the record stands as a trusted actor signed it."""
        texts = {
            name: h.text_of(headers, name)
            for name in (h.ACTOR, h.PAYLOAD_SHA256, h.SIGNATURE_ALGORITHM, h.SIGNATURE)
        }
        if missing := [name for name, text in texts.items() if not text]:
            raise Unreadable(EnumParkReason.UNSIGNED, f"no {', '.join(missing)}")
        actor, claimed, algorithm, encoded = map(str, texts.values())
        if algorithm != ALGORITHM:
            raise Unreadable(
                EnumParkReason.BAD_SIGNATURE,
                f"{h.SIGNATURE_ALGORITHM}={algorithm[:80]!r}; this topic takes {ALGORITHM!r}",
            )
        digest = hashlib.sha256(value).hexdigest()
        if claimed != digest:
            raise Unreadable(
                EnumParkReason.BAD_SIGNATURE, f"the value's hash is not {h.PAYLOAD_SHA256}"
            )
        try:
            made = base64.b64decode(encoded, validate=True)
        except ValueError:  # of letters beyond ASCII a plain one, else base64's own
            raise Unreadable(EnumParkReason.BAD_SIGNATURE, f"{h.SIGNATURE} is no base64") from None
        self._verify(actor, made, h.signed_text(topic, key, headers, digest))

    def _verify(self, actor: str, made: bytes, text: bytes) -> None:
        key_id = int.from_bytes(made[_KEY_ID], "big")
        keyset = self.keysets.get(actor)
        if keyset is None or key_id not in _verifier(keyset).key_ids:
            raise Unreadable(
                EnumParkReason.UNKNOWN_KEY,
                f"key id {key_id} of the actor {actor[:80]!r} is not trusted here",
            )
        try:
            _verifier(keyset).primitive.verify(made, text)
        except tink.TinkError:
            raise Unreadable(
                EnumParkReason.BAD_SIGNATURE,
                "topic, key, actor, tenant or scope are not what was signed",
            ) from None


def trusted_signers(settings: Settings) -> TrustedSigners:
    """Everybody whose signatures are taken, as the folder of keys says now."""
    return TrustedSigners(KeyFolder(settings).trusted())


@dataclass(frozen=True, slots=True)
class _Verifier:
    primitive: signature.PublicKeyVerify
    key_ids: frozenset[int]


@lru_cache(maxsize=1000)
def _verifier(keyset: str) -> _Verifier:
    handle = json_proto_keyset_format.parse_without_secret(keyset)
    ids = frozenset(key.key_id for key in handle.keyset_info().key_info)
    return _Verifier(handle.primitive(signature.PublicKeyVerify), ids)


def _bytes(text: str | bytes | None) -> bytes | None:
    return text.encode() if isinstance(text, str) else text
