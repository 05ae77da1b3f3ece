"""Values of many records at once: ids, instants and entities as whole columns.

Nothing here decides what is right; a text that is not plainly what it should be becomes null.
"""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from onex_platform.domain.headers import MOST_BYTES, readable
from onex_platform.domain.identity import CANARY_ID, CANARY_TENANT, identify_admitted

ID = pa.binary(16)
INSTANT = pa.timestamp("us", tz="UTC")

_NIL = "00000000-0000-0000-0000-000000000000"
_DASHES = [8, 13, 18, 23]
_DIGITS = [place for place in range(36) if place not in _DASHES]
_NO_DIGIT = 255
# The value of each hexadecimal digit, by its code.
_HEX = np.full(256, _NO_DIGIT, dtype=np.uint8)
_HEX[np.frombuffer(b"0123456789abcdef", dtype=np.uint8)] = np.arange(16)
_TIME = r"^[12]\d{3}-\d\d-\d\dT[0-2]\d:\d\d:\d\d(\.\d{1,6})?(Z|\+00:00)$"


def text_bytes(texts: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """The bytes of all texts, one after the other, and where each begins; the end comes last."""
    _, offsets, data = texts.buffers()
    bounds = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    content = np.frombuffer(data or b"", np.uint8)[bounds[0] : bounds[-1]]
    return content, bounds - bounds[0]


def uuids(texts: pa.Array) -> pa.Array:
    """UUIDs in canonical spelling as sixteen bytes."""
    right = pc.fill_null(pc.equal(pc.binary_length(texts), len(_NIL)), False)
    filled = texts if pc.all(right).as_py() else pc.if_else(right, texts, _NIL)
    codes = text_bytes(filled)[0].reshape(-1, len(_NIL))
    digits = _HEX[codes[:, _DIGITS]]
    good = (codes[:, _DASHES] == ord("-")).all(axis=1) & (digits != _NO_DIGIT).all(axis=1)
    data = (digits[:, 0::2] << 4) | digits[:, 1::2]
    ids = pa.FixedSizeBinaryArray.from_buffers(ID, len(texts), [None, pa.py_buffer(data.tobytes())])
    return pc.if_else(pc.and_(right, pa.array(good)), ids, pa.scalar(None, ID))


def instants(texts: pa.Array) -> pa.Array:
    """Instants in UTC, spelled as producers spell them."""
    spelled = pc.match_substring_regex(texts, _TIME)
    if not pc.all(pc.fill_null(spelled, False)).as_py():
        texts = pc.if_else(spelled, texts, pa.scalar(None, pa.string()))
    try:
        return texts.cast(INSTANT)
    except pa.ArrowInvalid:  # the 30th of February
        return pa.array([_instant(text) for text in texts.to_pylist()], INSTANT)


def _instant(text: str | None) -> datetime | None:
    try:
        return None if text is None else datetime.fromisoformat(text)
    except ValueError:
        return None


def entities(tenants: pa.DictionaryArray, node_ids: pa.Array) -> pa.Array:
    """The entity of each tenant's node; each pair is looked at once.

    A UUID in canonical spelling is the entity, whoever's it is; but for the canary, about which the
    domain has its say.
    """
    named, ids = pc.is_valid(tenants.indices), uuids(node_ids)
    reserved = pc.or_(
        pc.fill_null(pc.equal(ids, pa.scalar(CANARY_ID.bytes, ID)), False),
        pc.equal(tenants.indices, pc.index(tenants.dictionary, CANARY_TENANT)),
    )
    spelled = pc.if_else(pc.and_not(named, reserved), ids, pa.scalar(None, ID))
    others = pc.and_(named, pc.is_null(spelled))
    if not pc.any(others).as_py():
        return spelled
    found = _identified(tenants.filter(others), node_ids.filter(others))
    return pc.replace_with_mask(spelled, others, found)


def _identified(tenants: pa.DictionaryArray, node_ids: pa.Array) -> pa.Array:
    nodes = pc.fill_null(node_ids, "").dictionary_encode()
    names, ids = tenants.dictionary.to_pylist(), nodes.dictionary.to_pylist()
    pairs = tenants.indices.to_numpy() * len(ids) + nodes.indices.to_numpy()
    distinct, places = np.unique(pairs, return_inverse=True)
    found = [_entity(names[pair // len(ids)], ids[pair % len(ids)]) for pair in distinct.tolist()]
    return pa.array(found, ID).take(pa.array(places))


@lru_cache(maxsize=200_000)
def _entity(tenant: str, node_id: str) -> bytes | None:
    try:
        return identify_admitted(node_id, tenant).entity_id.bytes
    except ValueError:
        return None


class Tagged(NamedTuple):
    """Which records have a header of some name that can be read, or only one that can't; and what
    the last of each says, where it can be read."""

    readable: NDArray[np.bool_]
    unreadable: NDArray[np.bool_]
    texts: pa.Array


class HeaderColumns:
    """The headers of many records: of each name, the last one counts."""

    def __init__(self, headers: pa.Array) -> None:
        each = headers.flatten()
        self._records = len(headers)
        self._parents = pc.list_parent_indices(headers).to_numpy()
        names = pc.struct_field(each, "key").dictionary_encode()
        self._names = {name: code for code, name in enumerate(names.dictionary.to_pylist())}
        self._codes = pc.fill_null(names.indices, -1).to_numpy()
        self._values = pc.struct_field(each, "value")

    def last(self, name: str) -> Tagged:
        """What the records' last header of this name says."""
        last = np.full(self._records, -1)
        if (code := self._names.get(name)) is not None:
            places = np.flatnonzero(self._codes == code)
            last[self._parents[places]] = places
        tagged = last >= 0
        values = pc.fill_null(self._values.take(pa.array(last[tagged])), b"")
        texts = _texts(values)
        if not texts.null_count:
            return Tagged(tagged, np.zeros(self._records, dtype=bool), texts)
        readable = tagged.copy()
        readable[tagged] = texts.is_valid().to_numpy(zero_copy_only=False)
        return Tagged(readable, tagged & ~readable, texts.drop_null())


def _texts(values: pa.Array) -> pa.Array:
    """Headers as texts; null where one can't be read."""
    if (pc.max(pc.binary_length(values)).as_py() or 0) <= MOST_BYTES:
        try:
            return values.cast(pa.string())
        except pa.ArrowInvalid:
            pass
    return pa.array([readable(value) for value in values.to_pylist()], pa.string())
