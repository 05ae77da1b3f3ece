"""The fast lane: records that are plainly what they should be are admitted by columns.

Whatever is unusual about a record (an escape, a payload that is not its last field, an odd spelling
of an id or a time) leaves it to `domain.intake.admit`, which alone judges and parks. So the lane
may miss records, but must never differ: a property test holds both together.

Only a flat heartbeat, most records of any fleet, is judged by columns alone. Of the others the
envelope is, and each payload by its model, as the intake does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from numpy.typing import NDArray

from onex_platform.domain.envelope import PAYLOADS
from onex_platform.domain.events import EVENT_TYPE_PREFIX, EnumEventKind
from onex_platform.domain.headers import NOTHING_ASKED, HeaderRules
from onex_platform.domain.intake import IntakeRules, is_ledgered, most_epoch
from onex_platform.domain.payloads import NodePayload, TimeoutPayload
from onex_platform.domain.states import EnumNodeType
from onex_platform.ingest.admission import header_columns
from onex_platform.ingest.admission.column_values import (
    ID,
    INSTANT,
    HeaderColumns,
    entities,
    instants,
    text_bytes,
    uuids,
)
from onex_platform.ingest.event_schema import LOG_SCHEMA

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
# Escapes, control characters, and numbers that Arrow reads and JSON does not know.
_UNUSUAL = r"[\\\x00-\x1f]|NaN|Inf"
# Numbers that may be larger than a double holds: the intake parks them, Arrow does not mind.
_HUGE = r"[:,\[ ]-?[0-9.]+[eE]\+?[0-9]{3}|[0-9]{100}"
_MOST_OPENED = 150  # lists and objects: they bound the depth, for which the intake has a limit
_VERSION = '"schema_version"'
KEY = "node_id"
_NODE_TYPES = pa.array([kind.value for kind in EnumNodeType])


class InputTopic(NamedTuple):
    """What the catalogue says about a topic that is read."""

    kind: EnumEventKind
    legacy: bool
    asked: HeaderRules = NOTHING_ASKED


class _Texts(NamedTuple):
    """Records whose text may be plain: where they are, what they say, and what is said of them."""

    rows: NDArray[np.int64]
    documents: pa.Array
    payloads: pa.Array
    flat: NDArray[np.bool_]  # the payload holds no object
    versioned: NDArray[np.bool_]  # a version is named

    def part(self, start: int, length: int) -> _Texts:
        end = start + length
        return _Texts(
            self.rows[start:end],
            self.documents.slice(start, length),
            self.payloads.slice(start, length),
            self.flat[start:end],
            self.versioned[start:end],
        )


def admit_plain(
    records: pa.Table, topics: Mapping[str, InputTopic], rules: IntakeRules, read_at: datetime
) -> tuple[pa.Table, NDArray[np.bool_], header_columns.Findings]:
    """The plain ones among the records as events, which records those were, and what is to be
    counted of them."""
    taken, findings = np.zeros(len(records), dtype=bool), header_columns.Findings()
    texts = _texts(records, topics, rules)
    parts = [LOG_SCHEMA.empty_table()]
    for start, documents in _parsed(texts.documents):
        part = texts.part(start, len(documents))
        whole = len(part.rows) == len(records)
        chosen = records if whole else records.take(pa.array(part.rows))
        good, events, found = _events(chosen, part, documents, topics, rules, read_at)
        taken[part.rows[good]] = True
        findings += found
        parts.append(events)
    return pa.concat_tables(parts), taken, findings


def _texts(records: pa.Table, topics: Mapping[str, InputTopic], rules: IntakeRules) -> _Texts:
    names = [name for name, topic in topics.items() if _is_eligible(topic, rules)]
    values = records["value"].combine_chunks()
    eligible = pc.is_in(records["topic"], pa.array(names, pa.string())).combine_chunks()
    short = pc.less_equal(pc.binary_length(values), rules.max_event_bytes)
    rows = np.flatnonzero(_all(eligible, short))
    try:
        documents = _chosen(values, rows).cast(pa.string())
    except pa.ArrowInvalid:
        rows = rows[[_is_utf8(values[row].as_py()) for row in rows.tolist()]]
        documents = _chosen(values, rows).cast(pa.string())
    data, bounds = text_bytes(documents)
    raw = data.tobytes()
    starts, ends = bounds[:-1], bounds[1:]
    braces = np.flatnonzero(data == ord("{"))
    braces = braces[data[braces - 1] != ord('"')]  # right behind a quote, it is part of a text
    first, beyond = np.searchsorted(braces, starts), np.searchsorted(braces, ends)
    brackets = np.flatnonzero(data == ord("["))
    lists = np.searchsorted(brackets, ends) - np.searchsorted(brackets, starts)
    # The payload is the last field, and nothing before it is an object: it begins at the second
    # brace of the text and ends one before the last.
    plain = (beyond - first > 1) & (beyond - first + lists <= _MOST_OPENED)
    plain &= ~_unusual(documents, data, raw)
    plain[plain] &= (
        (data[starts[plain]] == ord("{"))
        & (data[ends[plain] - 1] == ord("}"))
        & (data[ends[plain] - 2] == ord("}"))
    )
    second = starts.copy()
    second[plain] = braces[first[plain] + 1]
    pieces = np.empty(3 * len(rows) + 1, np.int32)
    pieces[0:-1:3], pieces[1::3], pieces[2::3] = starts, second, np.maximum(ends - 1, second)
    pieces[-1] = len(data)
    cut = pa.StringArray.from_buffers(3 * len(rows), pa.py_buffer(pieces), pa.py_buffer(data))
    kept = np.flatnonzero(plain)
    return _Texts(
        rows[kept],
        _chosen(documents, kept),
        cut.take(pa.array(3 * kept + 1)),
        (beyond - first == 2)[kept],
        _holding(documents, raw, _VERSION)[kept],
    )


def _is_eligible(topic: InputTopic, rules: IntakeRules) -> bool:
    """Whether all that the log wants of an event of this topic is plainly in the record."""
    model = PAYLOADS[topic.kind]
    return (
        issubclass(model, NodePayload)
        and not issubclass(model, TimeoutPayload)
        and rules.upcasters.current_version(topic.kind) == 1
        and not topic.asked.signed
        and topic.asked.key in (None, KEY)
    )


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _unusual(texts: pa.Array, data: NDArray[np.uint8], raw: bytes) -> NDArray[np.bool_]:
    """Which texts hold something unusual."""
    # That none does is found out faster than which do; one letter faster than three.
    odd = b"\\" in raw or (b"N" in raw and b"NaN" in raw) or (b"I" in raw and b"Inf" in raw)
    huge = pc.match_substring_regex(texts, _HUGE)
    if not odd and data.min(initial=ord(" ")) >= ord(" "):
        return np.asarray(huge)
    return np.asarray(pc.or_(huge, pc.match_substring_regex(texts, _UNUSUAL)))


def _holding(texts: pa.Array, raw: bytes, word: str) -> NDArray[np.bool_]:
    """Which texts hold the word."""
    if word.encode() not in raw:
        return np.zeros(len(texts), dtype=bool)
    return np.asarray(pc.match_substring(texts, word))


def _parsed(texts: pa.Array, start: int = 0) -> Iterator[tuple[int, pa.Table]]:
    """The texts parsed, in stretches; one that a record spoils is halved until it is small."""
    if not len(texts):
        return
    data, _ = text_bytes(texts)
    try:
        table = pj.read_json(
            pa.BufferReader(pa.py_buffer(data)),
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


def _events(
    records: pa.Table,
    texts: _Texts,
    documents: pa.Table,
    topics: Mapping[str, InputTopic],
    rules: IntakeRules,
    read_at: datetime,
) -> tuple[NDArray[np.bool_], pa.Table, header_columns.Findings]:
    """Which of these are events as they should be, those as rows of the log, and what is to be
    counted of them."""
    names = records["topic"].combine_chunks().dictionary_encode()
    codes = names.indices.to_numpy()
    known = [topics[name] for name in names.dictionary.to_pylist()]
    document = {name: documents[name].combine_chunks() for name in _ENVELOPE.names}
    payload = document["payload"]
    node_ids, epochs = payload.field("node_id"), payload.field("epoch")
    asked = [topic.asked for topic in known]
    headers = HeaderColumns(records["headers"].combine_chunks())
    tenants = header_columns.tenants_of(
        headers, document["tenant"], codes, asked, rules.default_tenant
    )
    entity_ids = entities(tenants, node_ids)
    event_ids, correlation_ids = uuids(document["event_id"]), uuids(document["correlation_id"])
    reported_at = instants(document["timestamp"])
    most = pa.array([most_epoch(topic.kind) for topic in known], pa.int64()).take(pa.array(codes))
    good = _all(
        _has_right_type(document["event_type"], codes, known),
        pc.is_valid(event_ids),
        pc.or_(pc.is_valid(correlation_ids), pc.is_null(document["correlation_id"])),
        pc.is_valid(reported_at),
        pc.is_valid(document["source"]),
        _is_version_one(document["schema_version"], texts.versioned),
        pc.is_valid(entity_ids),
        _absent_or(epochs, _between, 0, most),
        _is_remembered(reported_at, codes, known, rules),
    )
    by_columns = texts.flat & _each(codes, [t.kind is EnumEventKind.NODE_HEARTBEAT for t in known])
    good &= ~by_columns | _is_heartbeat(payload)
    found = header_columns.found_in(records, headers, document["source"], node_ids, codes, asked)
    good &= ~header_columns.parked_for(found, codes, asked)
    modelled = np.flatnonzero(good & ~by_columns)
    dumped, broken = _dumped(texts.payloads, modelled, codes, known)
    good[broken] = False
    rows = np.flatnonzero(good)
    payloads = texts.payloads
    if len(modelled):
        mask = np.zeros(len(good), dtype=bool)
        mask[modelled] = True
        payloads = pc.replace_with_mask(payloads, pa.array(mask), pa.array(dumped))
    occurred_at = _occurred_at(records, read_at)
    kinds = pa.DictionaryArray.from_arrays(names.indices, [topic.kind.value for topic in known])
    values = {
        "entity_id": entity_ids,
        "position": pa.array(np.zeros(len(good), dtype=np.int64)),
        "kind": kinds.cast(pa.string()),
        "event_id": event_ids,
        "tenant": tenants.cast(pa.string()),
        "node_id": node_ids,
        "epoch": epochs,
        "occurred_at": occurred_at,
        "reported_at": reported_at,
        "deadline": _deadlines(occurred_at, codes, known, rules),
        "correlation_id": correlation_ids,
        "cause_id": pa.nulls(len(good), ID),
        # Copied: a column of a batch keeps all of it in memory, the texts included.
        "topic": names.cast(pa.string()),
        "partition": pa.array(np.array(records["partition"])),
        "offset": pa.array(np.array(records["offset"])),
        "duplicate": pa.array(np.zeros(len(good), dtype=bool)),
        "payload": payloads,
    }
    events = pa.table([values[name] for name in LOG_SCHEMA.names], schema=LOG_SCHEMA)
    counts = header_columns.counted(found, names.dictionary.to_pylist(), codes, good)
    return good, events if len(rows) == len(good) else events.take(pa.array(rows)), counts


def _has_right_type(types: pa.Array, codes: NDArray[np.int32], known: list[InputTopic]) -> pa.Array:
    """As it is called now, or, on a legacy topic, by any name outside the platform's namespace."""
    wanted = pa.array([topic.kind.event_type for topic in known]).take(pa.array(codes))
    older = pc.and_(
        pa.array(_each(codes, [topic.legacy for topic in known])),
        pc.invert(pc.starts_with(types, EVENT_TYPE_PREFIX)),
    )
    return pc.or_(pc.equal(types, wanted), older)


def _is_version_one(versions: pa.Array, versioned: NDArray[np.bool_]) -> pa.Array:
    """Whether a version is 1 or absent; where it says null, the intake has its say."""
    absent = pc.and_(pc.is_null(versions), pa.array(~versioned))
    return pc.or_(absent, pc.fill_null(pc.equal(versions, 1), False))


def _is_remembered(
    reported_at: pa.Array, codes: NDArray[np.int32], known: list[InputTopic], rules: IntakeRules
) -> pa.Array:
    """Whether the ledger reaches back to the time that an event reports, where it has to."""
    if rules.ledger_floor is None:
        return pa.array(np.ones(len(codes), dtype=bool))
    exempt = pa.array(_each(codes, [not is_ledgered(topic.kind) for topic in known]))
    floor = pa.scalar(rules.ledger_floor, INSTANT)
    return pc.or_(exempt, pc.greater_equal(reported_at, floor))


def _is_heartbeat(payload: pa.StructArray) -> NDArray[np.bool_]:
    """Where a flat payload is one of a heartbeat, besides its node and epoch."""
    return _all(
        _absent_or(payload.field("active_operations_count"), _between, 0, 2**62),
        _absent_or(pc.utf8_lower(payload.field("node_type")), pc.is_in, _NODE_TYPES),
        _absent_or(pc.utf8_length(payload.field("node_version")), _between, 0, 1024),
        *(_absent_or(payload.field(name), _between, 0, 1e300) for name in _NUMBERS),
    )


def _dumped(
    payloads: pa.Array, rows: NDArray[np.int64], codes: NDArray[np.int32], known: list[InputTopic]
) -> tuple[list[str], list[int]]:
    """The payloads of some rows as their models write them, and the rows where one is none."""
    texts, broken = [], []
    chosen = payloads.take(pa.array(rows)).to_pylist()
    for row, text in zip(rows.tolist(), chosen, strict=True):
        try:
            model = PAYLOADS[known[codes[row]].kind]
            texts.append(model.model_validate_json(text).model_dump_json())
        except ValueError:
            texts.append(text)
            broken.append(row)
    return texts, broken


def _occurred_at(records: pa.Table, read_at: datetime) -> pa.Array:
    """By the broker's clock, or bounded by ours where the producer set the time."""
    bound = pa.scalar(read_at, INSTANT).cast(pa.int64()).as_py()
    times = np.asarray(pc.fill_null(records["timestamp"].cast(INSTANT).cast(pa.int64()), bound))
    appended = np.asarray(pc.equal(records["timestampType"], 1))
    return pa.array(np.where(appended, times, np.minimum(times, bound))).cast(INSTANT)


def _deadlines(
    occurred_at: pa.Array, codes: NDArray[np.int32], known: list[InputTopic], rules: IntakeRules
) -> pa.Array:
    """The deadline that each event grants; null where its kind grants none."""
    windows = [rules.durations.window_of(topic.kind) for topic in known]
    return pc.add(occurred_at, pa.array(windows, pa.duration("us")).take(pa.array(codes)))


def _each(codes: NDArray[np.int32], of_topics: list[bool]) -> NDArray[np.bool_]:
    """What is true of each record's topic."""
    values: NDArray[np.bool_] = np.array(of_topics, dtype=bool)[codes]
    return values


def _chosen(column: pa.Array, rows: NDArray[np.int64]) -> pa.Array:
    return column if len(rows) == len(column) else column.take(pa.array(rows))


def _all(*conditions: pa.Array) -> NDArray[np.bool_]:
    """Where every condition holds; an unknown one does not."""
    masks = [
        np.asarray(pc.fill_null(condition, False) if condition.null_count else condition)
        for condition in conditions
    ]
    together: NDArray[np.bool_] = np.logical_and.reduce(masks)
    return together


def _absent_or(column: pa.Array, holds: Callable[..., pa.Array], *bounds: Any) -> pa.Array:
    return pc.or_(pc.is_null(column), pc.fill_null(holds(column, *bounds), False))


def _between(column: pa.Array, low: float, high: float | pa.Array) -> pa.Array:
    return pc.and_(pc.greater_equal(column, low), pc.less_equal(column, high))
