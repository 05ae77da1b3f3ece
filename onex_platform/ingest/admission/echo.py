"""Our own echo: records of events that the platform published, told before any of them is parsed.

A record is an echo if the ledger knows it from when it was published: its kind, key, tenant and
value, byte by byte. What has its id but differs, what has headers that its topic's contract would
find fault with, and what was changed on its way out (signed, sealed, lifted to another version) is
none: `admit` has its say. So an echo is always a record that would have become a duplicate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from onex_platform.domain.intake import IntakeRules, is_ledgered
from onex_platform.ingest.admission import header_columns
from onex_platform.ingest.admission.column_values import HeaderColumns
from onex_platform.ingest.admission.fast_path import KEY, InputTopic
from onex_platform.ingest.deduplication import digest_of
from onex_platform.records.wrapping import SERVICE

# Of events by their ids, the digests of those that the platform published; not those from before
# the ledger's floor.
PublishedLookup = Callable[[Sequence[str], datetime | None], set[bytes]]

# How these are found need not be exact: the digest decides.
_SOURCE = f'"{SERVICE}"'
_ID = r'"event_id": ?"(?P<id>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"'


class EchoRun(NamedTuple):
    """Offsets of one partition, one after the other, all of them echoes."""

    topic: str
    partition: int
    start: int
    end: int


def without_echo(
    records: pa.Table,
    topics: Mapping[str, InputTopic],
    rules: IntakeRules,
    published: PublishedLookup,
) -> tuple[pa.Table, list[EchoRun]]:
    """The records that are no echoes, and the offsets of those that are."""
    rows = _candidates(records, topics, rules)
    if not len(rows):
        return records, []
    chosen = records.take(pa.array(rows))
    plain, tenants = _plain(chosen, topics)
    ids = pc.struct_field(pc.extract_regex(chosen["value"].combine_chunks(), _ID), "id")
    plain &= np.asarray(pc.is_valid(ids))
    rows, chosen = rows[plain], chosen.filter(pa.array(plain))
    ids, tenants = ids.filter(pa.array(plain)), tenants.filter(pa.array(plain))
    said = (chosen["topic"], chosen["key"], tenants, chosen["value"])
    digests = [
        digest_of(topics[topic].kind.encode(), key, tenant.encode(), value)
        for topic, key, tenant, value in zip(*(part.to_pylist() for part in said), strict=True)
    ]
    known = published([item.decode() for item in ids.to_pylist()], rules.ledger_floor)
    is_echo = np.array([digest in known for digest in digests], dtype=bool)
    if not is_echo.any():
        return records, []
    left = np.ones(len(records), dtype=bool)
    left[rows[is_echo]] = False
    return records.filter(pa.array(left)), _runs(chosen.filter(pa.array(is_echo)))


def _candidates(
    records: pa.Table, topics: Mapping[str, InputTopic], rules: IntakeRules
) -> NDArray[np.int64]:
    """The records that say they are ours, of topics whose contracts ask for nothing unusual."""
    names = [
        name
        for name, topic in topics.items()
        if is_ledgered(topic.kind) and not topic.asked.signed and topic.asked.key in (None, KEY)
    ]
    eligible = pc.is_in(records["topic"], pa.array(names, pa.string()))
    if not pc.any(eligible).as_py():
        return np.zeros(0, np.int64)
    values = records["value"]
    ours = pc.and_(
        pc.match_substring(values, _SOURCE),
        pc.less_equal(pc.binary_length(values), rules.max_event_bytes),
    )
    keyed = pc.and_(eligible, pc.is_valid(records["key"]))
    return np.flatnonzero(np.asarray(pc.fill_null(pc.and_(keyed, ours), False)))


def _plain(
    records: pa.Table, topics: Mapping[str, InputTopic]
) -> tuple[NDArray[np.bool_], pa.Array]:
    """Whether headers are as the contracts want them, and the tenants that they name.

    The key can't be wrong: it is a part of what was published.
    """
    names = records["topic"].combine_chunks().dictionary_encode()
    codes = names.indices.to_numpy()
    asked = [topics[name].asked for name in names.dictionary.to_pylist()]
    headers = HeaderColumns(records["headers"].combine_chunks())
    tenants = header_columns.tenants_of(
        headers, pa.nulls(len(records), pa.string()), codes, asked, default=""
    ).cast(pa.string())
    sources = pa.array([SERVICE]).take(pa.array(np.zeros(len(records), np.int64)))
    keys = records["key"].combine_chunks()
    found = header_columns.found_in(records, headers, sources, keys, codes, asked)
    plain: NDArray[np.bool_] = ~np.logical_or.reduce(list(found.values()))
    return plain & np.asarray(pc.is_valid(tenants)), tenants


def _runs(records: pa.Table) -> list[EchoRun]:
    """The places of records as runs of offsets."""
    topics = records["topic"].combine_chunks().dictionary_encode()
    partitions, offsets = records["partition"].to_numpy(), records["offset"].to_numpy()
    order = np.lexsort((offsets, partitions, topics.indices.to_numpy()))
    places = np.stack([topics.indices.to_numpy(), partitions, offsets])[:, order]
    changes = np.diff(places)
    begins = np.concatenate([[True], changes[:2].any(axis=0) | (changes[2] != 1)])
    starts = np.flatnonzero(begins)
    ends = np.append(starts[1:], len(offsets)) - 1
    names = topics.dictionary.to_pylist()
    return [
        EchoRun(names[topic], partition, start, end + 1)
        for (topic, partition, start), end in zip(
            places[:, starts].T.tolist(), places[2, ends].tolist(), strict=True
        )
    ]
