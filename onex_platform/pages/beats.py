"""The fast lane for heartbeats, most records of any fleet: admitted by columns, not one by one.

A record takes this lane only if it is plainly what it should be; whatever is unusual about it (an
escape, a nested or odd value, another spelling) sends it to `domain.intake.admit`, which alone
judges and parks. So the lane may miss records, but must never differ: a property test holds both
together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from numpy.typing import NDArray

from onex_platform.domain.events import EVENT_TYPE_PREFIX, EnumEventKind
from onex_platform.domain.identity import identify_node
from onex_platform.domain.intake import TENANT_HEADER, IntakeRules, is_tenant
from onex_platform.domain.payloads import MAX_EPOCH
from onex_platform.domain.states import EnumNodeType
from onex_platform.pages.schema import ENTRY_SCHEMA, bucket_of

_KIND = EnumEventKind.NODE_HEARTBEAT
_INSTANT = pa.timestamp("us", tz="UTC")
_NIL = "00000000-0000-0000-0000-000000000000"
_CONTRADICTION = ""  # no tenant has this name
# The value of each hexadecimal digit, by its code.
_HEX = np.zeros(256, dtype=np.uint8)
_HEX[np.frombuffer(b"0123456789abcdef", dtype=np.uint8)] = np.arange(16)
# Below this, halving a batch in search of the record that spoils it costs more than it saves.
_SMALLEST = 64

_NUMBERS = ("uptime_seconds", "memory_usage_mb", "cpu_usage_percent")
_TEXTS = ("node_type", "node_version")
_PAYLOAD = pa.struct(
    [
        pa.field("node_id", pa.string()),
        pa.field("epoch", pa.int64()),
        pa.field("active_operations_count", pa.int64()),
        *(pa.field(name, pa.string()) for name in _TEXTS),
        *(pa.field(name, pa.float64()) for name in _NUMBERS),
    ]
)
_ENVELOPE = pa.schema(
    [
        pa.field("event_id", pa.string()),
        pa.field("event_type", pa.string()),
        pa.field("source", pa.string()),
        pa.field("correlation_id", pa.string()),
        pa.field("timestamp", pa.string()),
        pa.field("schema_version", pa.int64()),
        pa.field("tenant", pa.string()),
        pa.field("payload", _PAYLOAD),
    ]
)
# Nothing escaped, no control character, no number out of the ordinary, and a flat payload at the
# end, so that its text is what follows the last of these keys. Braces of its own may only stand
# around a UUID.
_UNUSUAL = r"[\\\x00-\x1f]|[:,\[ ]-?[0-9.]+[eE][+-]?[0-9]{3}|NaN|Infinity"
_PAYLOAD_KEY = '"payload":'
_FLAT = r'^ ?\{([^{}]|"\{[0-9a-fA-F-]{32,36}\}")*\}\}$'
_UUID = r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
_TIME = r"^[12]\d{3}-\d\d-\d\dT[0-2]\d:\d\d:\d\d(\.\d{1,6})?(Z|\+00:00)$"
_NODE_TYPES = pa.array([kind.value for kind in EnumNodeType])


class _Plain(NamedTuple):
    """Records whose text has nothing unusual: their rows, texts, and the texts of payloads."""

    rows: NDArray[np.int64]
    texts: pa.Array
    payloads: pa.Array

    def part(self, start: int, length: int) -> _Plain:
        return _Plain(
            self.rows[start : start + length],
            self.texts.slice(start, length),
            self.payloads.slice(start, length),
        )


def admit_beats(
    records: pa.Table,
    legacy_topics: Collection[str],
    rules: IntakeRules,
    read_at: datetime,
    buckets: int,
) -> tuple[pa.Table, NDArray[np.bool_]]:
    """The plain ones among heartbeat records as entries, and which records those were."""
    taken = np.zeros(len(records), dtype=bool)
    plain = _plain(records, rules.max_event_bytes)
    entries = []
    for start, documents in _parsed(plain.texts):
        part = plain.part(start, len(documents))
        chosen, entry = _entries(
            records if len(part.rows) == len(records) else records.take(pa.array(part.rows)),
            legacy_topics,
            part.payloads,
            documents,
            rules,
            read_at,
            buckets,
        )
        taken[part.rows[chosen]] = True
        entries.append(entry)
    return pa.concat_tables([ENTRY_SCHEMA.empty_table(), *entries]), taken


def _plain(records: pa.Table, max_bytes: int) -> _Plain:
    values = records["value"].combine_chunks()
    rows = np.flatnonzero(
        pc.fill_null(pc.less_equal(pc.binary_length(values), max_bytes), False).to_numpy(
            zero_copy_only=False
        )
    )
    empty = pa.array([], pa.string())
    try:
        texts = values.take(pa.array(rows)).cast(pa.string())
    except pa.ArrowInvalid:  # not UTF-8 somewhere
        return _Plain(rows[:0], empty, empty)
    halves = pc.split_pattern(texts, _PAYLOAD_KEY, max_splits=1, reverse=True)
    divided = pc.equal(pc.list_value_length(halves), 2)
    rows, texts = rows[np.asarray(divided)], texts.filter(divided)
    endings = pc.list_element(halves.filter(divided), 1)
    plain = pc.and_(
        pc.match_substring_regex(endings, _FLAT),
        pc.invert(pc.match_substring_regex(texts, _UNUSUAL)),
    )
    payloads = pc.utf8_ltrim_whitespace(pc.utf8_slice_codeunits(endings.filter(plain), 0, -1))
    return _Plain(rows[np.asarray(plain)], texts.filter(plain), payloads)


def _parsed(texts: pa.Array, start: int = 0) -> Iterator[tuple[int, pa.Table]]:
    """The texts parsed, in stretches; one that a record spoils is halved until it is small."""
    if not len(texts):
        return
    lines = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
    data = pc.binary_join(lines, "\n")[0].as_buffer()
    try:
        table = pj.read_json(
            pa.BufferReader(data),
            pj.ReadOptions(use_threads=False, block_size=len(data) + 1),
            pj.ParseOptions(explicit_schema=_ENVELOPE, unexpected_field_behavior="ignore"),
        )
        if len(table) == len(texts):
            yield start, table
            return
    except pa.ArrowInvalid:
        pass
    if len(texts) > _SMALLEST:
        half = len(texts) // 2
        yield from _parsed(texts[:half], start)
        yield from _parsed(texts[half:], start + half)


def _entries(
    records: pa.Table,
    legacy_topics: Collection[str],
    payloads: pa.Array,
    documents: pa.Table,
    rules: IntakeRules,
    read_at: datetime,
    buckets: int,
) -> tuple[NDArray[np.bool_], pa.Table]:
    """Which of these are heartbeats as they should be, and those as entries of the log."""
    payload = documents["payload"].combine_chunks()
    node_ids, epochs = payload.field("node_id"), payload.field("epoch")
    tenants = _tenants(records, documents, rules)
    entities = _entities(tenants, node_ids)
    reported_at = _instants(documents["timestamp"].combine_chunks())
    good = _all(
        _has_right_type(documents["event_type"], records["topic"], legacy_topics),
        pc.match_substring_regex(documents["event_id"], _UUID),
        _absent_or(documents["correlation_id"], pc.match_substring_regex, _UUID),
        pc.is_valid(reported_at),
        pc.is_valid(documents["source"]),
        _absent_or(documents["schema_version"], pc.equal, 1),
        pc.is_valid(entities),
        _absent_or(epochs, _between, 0, MAX_EPOCH),
        _absent_or(payload.field("active_operations_count"), _between, 0, 2**62),
        _absent_or(pc.utf8_lower(payload.field("node_type")), pc.is_in, _NODE_TYPES),
        _absent_or(pc.utf8_length(payload.field("node_version")), _between, 0, 1024),
        *(_absent_or(payload.field(name), _between, 0, 1e300) for name in _NUMBERS),
    )
    mask = pa.array(good)
    occurred_at = _occurred_at(records, read_at).filter(mask)
    entity_ids = entities.filter(mask)
    count = len(entity_ids)
    values = {
        "bucket": pa.array([bucket_of(item, buckets) for item in entity_ids.to_pylist()]),
        "entity_id": entity_ids,
        "position": pa.array(np.zeros(count, dtype=np.int64)),
        "kind": pa.array([_KIND.value]).take(pa.array(np.zeros(count, dtype=np.int8))),
        "event_id": _uuid_bytes(documents["event_id"].filter(mask)),
        "tenant": tenants.filter(mask),
        "node_id": node_ids.filter(mask),
        "epoch": epochs.filter(mask),
        "occurred_at": occurred_at,
        "reported_at": reported_at.filter(mask),
        "deadline": pc.add(occurred_at, pa.scalar(rules.durations.heartbeat_liveness)),
        "correlation_id": _uuid_bytes(documents["correlation_id"].filter(mask)),
        "topic": records["topic"].filter(mask),
        "partition": records["partition"].filter(mask),
        "offset": records["offset"].filter(mask),
        "duplicate": pa.array(np.zeros(count, dtype=bool)),
        "payload": payloads.filter(mask),
    }
    columns = [
        values[field.name] if field.name in values else pa.nulls(count, field.type)
        for field in ENTRY_SCHEMA
    ]
    return good, pa.table(columns, names=ENTRY_SCHEMA.names).cast(ENTRY_SCHEMA)


def _has_right_type(
    types: pa.ChunkedArray, topics: pa.ChunkedArray, legacy_topics: Collection[str]
) -> pa.ChunkedArray:
    """As it is called now, or, on a legacy topic, by any name outside the platform's namespace."""
    older = pc.and_(
        pc.is_in(topics, pa.array(sorted(legacy_topics), pa.string())),
        pc.invert(pc.starts_with(types, EVENT_TYPE_PREFIX)),
    )
    return pc.or_(pc.equal(types, _KIND.event_type), older)


def _tenants(records: pa.Table, documents: pa.Table, rules: IntakeRules) -> pa.Array:
    """Each record's tenant; null where it is none, or where header and envelope contradict."""
    claims = pc.fill_null(documents["tenant"], rules.default_tenant).combine_chunks()
    tagged, tags = _tenant_headers(records["headers"].combine_chunks())
    if tagged.any():
        named = documents["tenant"].combine_chunks().filter(pa.array(tagged))
        differs = pc.fill_null(pc.not_equal(named, tags), False)
        claimed = pc.if_else(differs, _CONTRADICTION, tags)
        claims = pc.replace_with_mask(claims, pa.array(tagged), claimed)
    tenants = claims.dictionary_encode()
    names = tenants.dictionary.to_pylist()
    return pa.array([n if is_tenant(n) else None for n in names], pa.string()).take(tenants.indices)


def _tenant_headers(headers: pa.Array) -> tuple[NDArray[np.bool_], pa.Array]:
    """Which records have a header that names a tenant, and what the last of each says."""
    each = headers.flatten()
    names = pc.fill_null(pc.equal(pc.struct_field(each, "key"), TENANT_HEADER), False)
    places = np.flatnonzero(names.to_numpy(zero_copy_only=False))
    last = np.full(len(headers), -1)
    last[pc.list_parent_indices(headers).to_numpy()[places]] = places
    tagged = last >= 0
    values = pc.fill_null(pc.struct_field(each, "value"), b"").take(pa.array(last[tagged]))
    encoded = values.dictionary_encode()
    texts = [value.decode("utf-8", "replace") for value in encoded.dictionary.to_pylist()]
    return tagged, pa.array(texts, pa.string()).take(encoded.indices)


def _entities(tenants: pa.Array, node_ids: pa.Array) -> pa.Array:
    """The entity of each record; null where its id is none."""
    pairs = zip(tenants.to_pylist(), node_ids.to_pylist(), strict=True)
    return pa.array([_entity(tenant, node_id) for tenant, node_id in pairs], pa.binary())


@lru_cache(maxsize=200_000)
def _entity(tenant: str | None, node_id: str | None) -> bytes | None:
    if tenant is None or node_id is None:
        return None
    try:
        return identify_node(node_id, tenant).entity_id.bytes
    except ValueError:
        return None


def _occurred_at(records: pa.Table, read_at: datetime) -> pa.Array:
    """By the broker's clock, or bounded by ours where the producer set the time."""
    bound = pa.scalar(read_at, _INSTANT).cast(pa.int64()).as_py()
    times = np.asarray(pc.fill_null(records["timestamp"].cast(_INSTANT).cast(pa.int64()), bound))
    appended = np.asarray(pc.equal(records["timestampType"], 1))
    return pa.array(np.where(appended, times, np.minimum(times, bound))).cast(_INSTANT)


def _instants(texts: pa.Array) -> pa.Array:
    """Instants as heartbeats spell them; null where a text is none."""
    spelled = pc.if_else(
        pc.match_substring_regex(texts, _TIME), texts, pa.scalar(None, pa.string())
    )
    try:
        return spelled.cast(_INSTANT)
    except pa.ArrowInvalid:  # the 30th of February
        return pa.array([_instant(text) for text in spelled.to_pylist()], _INSTANT)


def _instant(text: str | None) -> datetime | None:
    try:
        return None if text is None else datetime.fromisoformat(text)
    except ValueError:
        return None


def _uuid_bytes(texts: pa.ChunkedArray) -> pa.Array:
    """UUIDs in canonical spelling as sixteen bytes; null stays null."""
    filled = pc.fill_null(texts, _NIL).combine_chunks()
    digits = pc.replace_substring(filled, "-", "")
    codes = np.frombuffer(digits.buffers()[2], dtype=np.uint8, count=32 * len(digits))
    values = _HEX[codes].reshape(-1, 2)
    data = ((values[:, 0] << 4) | values[:, 1]).tobytes()
    ids = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(16), len(digits), [None, pa.py_buffer(data)]
    ).cast(pa.binary())
    return pc.if_else(pc.is_valid(texts.combine_chunks()), ids, pa.scalar(None, pa.binary()))


def _all(*conditions: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Where every condition holds; an unknown one does not."""
    masks = [np.asarray(pc.fill_null(condition, False)) for condition in conditions]
    together: NDArray[np.bool_] = np.logical_and.reduce(masks)
    return together


def _absent_or(
    column: pa.ChunkedArray, holds: Callable[..., pa.ChunkedArray], *bounds: Any
) -> pa.ChunkedArray:
    return pc.or_(pc.is_null(column), pc.fill_null(holds(column, *bounds), False))


def _between(column: pa.ChunkedArray, low: float, high: float) -> pa.ChunkedArray:
    return pc.and_(pc.greater_equal(column, low), pc.less_equal(column, high))
