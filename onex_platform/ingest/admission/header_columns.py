"""What headers and keys say, by columns: whose records they are, and what is wrong with them.

The rules are `domain.headers.findings` and the intake's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from onex_platform.domain.headers import (
    ACTOR,
    TENANT,
    EnumHeaderFinding,
    EnumOnRead,
    HeaderRules,
    examined,
)
from onex_platform.domain.intake import PARKED_FOR, is_tenant
from onex_platform.ingest.admission.column_values import HeaderColumns

# How many records of a topic had something wrong.
Findings = Counter[tuple[str, EnumHeaderFinding]]
_CONTRADICTION = ""  # no tenant has this name
Mask = NDArray[np.bool_]
Found = dict[EnumHeaderFinding, Mask]


def found_in(
    records: pa.Table,
    headers: HeaderColumns,
    sources: pa.Array,
    fields: pa.Array,
    codes: NDArray[np.int32],
    asked: Sequence[HeaderRules],
) -> Found:
    """Which records have which fault; `codes` say which of the topics' rules binds each.

    `fields` are what the values have where the contracts take the keys from.
    """
    size = len(records)
    missing, unreadable = np.zeros(size, dtype=bool), np.zeros(size, dtype=bool)
    wanted = [rules for rules in asked if rules.on_read is not EnumOnRead.IGNORE]
    for name in dict.fromkeys(name for rules in wanted for name in examined(rules)):
        tagged = headers.last(name)
        unreadable |= _where([name in examined(rules) for rules in asked], codes, tagged.unreadable)
        missing |= _where([name in rules.required for rules in asked], codes, ~tagged.readable)
    found = {
        EnumHeaderFinding.MISSING: missing,
        EnumHeaderFinding.UNREADABLE: unreadable,
        EnumHeaderFinding.ACTOR: _other_actors(headers, sources),
        EnumHeaderFinding.KEY: _other_keys(records, fields),
    }
    if len(wanted) < len(asked):
        counts = np.array([rules.on_read is not EnumOnRead.IGNORE for rules in asked])[codes]
        return {finding: mask & counts for finding, mask in found.items()}
    return found


def parked_for(found: Found, codes: NDArray[np.int32], asked: Sequence[HeaderRules]) -> Mask:
    """Which records have a fault that their topic parks for."""
    parks = np.array([rules.on_read is EnumOnRead.PARK for rules in asked])[codes]
    wrong: Mask = np.logical_or.reduce([found[finding] for finding in PARKED_FOR])
    return parks & wrong


def counted(found: Found, names: Sequence[str], codes: NDArray[np.int32], chosen: Mask) -> Findings:
    """How many of the chosen records of each topic have which fault."""
    counts = Findings()
    for finding, mask in found.items():
        numbers = np.bincount(codes[mask & chosen], minlength=len(names)).tolist()
        counts.update({(name, finding): n for name, n in zip(names, numbers, strict=True) if n})
    return counts


def tenants_of(
    headers: HeaderColumns,
    claimed: pa.Array,
    codes: NDArray[np.int32],
    asked: Sequence[HeaderRules],
    default: str,
) -> pa.DictionaryArray:
    """Each record's tenant; null where it is none, or where topic, header and envelope
    contradict."""
    tagged = headers.last(TENANT)
    claims = claimed
    if tagged.readable.any():
        mask = pa.array(tagged.readable)
        claims = _agreed(claims, pc.replace_with_mask(claims, mask, tagged.texts), mask)
    if any(topic.tenant is not None for topic in asked):
        named = pa.array([topic.tenant for topic in asked], pa.string()).take(pa.array(codes))
        claims = _agreed(claims, pc.coalesce(named, claims), pc.is_valid(named))
    tenants = pc.fill_null(claims, default).dictionary_encode()
    names = tenants.dictionary.to_pylist()
    valid = pa.array([is_tenant(name) for name in names], pa.bool_()).take(tenants.indices)
    places = pc.if_else(valid, tenants.indices, pa.scalar(None, pa.int32()))
    return pa.DictionaryArray.from_arrays(places, tenants.dictionary)


def _where(topics: list[bool], codes: NDArray[np.int32], mask: Mask) -> Mask:
    """The records of the mask that belong to these topics; most often that is all or none."""
    if all(topics):
        return mask
    chosen: Mask = np.array(topics)[codes] & mask if any(topics) else np.zeros_like(mask)
    return chosen


def _agreed(one: pa.Array, other: pa.Array, where: pa.Array) -> pa.Array:
    """The other's claims, and a contradiction where the one has a different one."""
    differs = pc.and_(where, pc.fill_null(pc.not_equal(one, other), False))
    return pc.if_else(differs, _CONTRADICTION, other)


def _other_actors(headers: HeaderColumns, sources: pa.Array) -> Mask:
    tagged = headers.last(ACTOR)
    differs = tagged.readable.copy()
    if differs.any():
        said = sources.filter(pa.array(tagged.readable))
        differs[tagged.readable] = pc.fill_null(pc.not_equal(said, tagged.texts), True)
    return differs


def _other_keys(records: pa.Table, fields: pa.Array) -> Mask:
    same = pc.equal(records["key"].combine_chunks(), fields.cast(pa.binary()))
    return ~np.asarray(pc.fill_null(same, False))
