"""Two topics that should hold the same events: what one lacks, has too often, or has in another
order. Pure.

Only events of a span of time are judged, against all that was read: what is younger may still be on
its way to the other side.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Seen(NamedTuple):
    """A record as far as the comparison knows it."""

    event_id: str
    key: bytes | None
    at_ms: int  # when it was appended
    removes: bool = False  # a tombstone


@dataclass(frozen=True)
class Comparison:
    """What differs, by event id; of disordered keys, the key and the first event that differs."""

    compared: int = 0
    missing_on_target: tuple[str, ...] = ()
    missing_on_source: tuple[str, ...] = ()
    doubled: tuple[str, ...] = ()
    disordered: tuple[str, ...] = ()


def compare(
    source: Sequence[Seen],
    target: Sequence[Seen],
    *,
    since_ms: int,
    until_ms: int,
    both_ways: bool = True,
) -> Comparison:
    """Judge the events that were appended from `since_ms` on and before `until_ms`.

    Without `both_ways` the target may have events that the source has not.
    """
    judged = [seen.event_id for seen in source if since_ms <= seen.at_ms < until_ms]
    returned = [seen.event_id for seen in target if both_ways and since_ms <= seen.at_ms < until_ms]
    here = Counter(seen.event_id for seen in source)
    there = Counter(seen.event_id for seen in target)
    return Comparison(
        compared=len(judged),
        missing_on_target=_distinct(one for one in judged if one not in there),
        missing_on_source=_distinct(one for one in returned if one not in here),
        doubled=_distinct(one for one in judged if there[one] and here[one] != there[one]),
        disordered=tuple(_disordered(source, target, set(judged) & there.keys())),
    )


def compare_latest(source: Iterable[Seen], target: Iterable[Seen], *, until_ms: int) -> Comparison:
    """Judge two compacted topics: what each key has last, whatever it had before.

    A key of which either side has something younger than `until_ms` is left out. A tombstone is as
    good as nothing: compaction takes it away. Differing keys are named with what the side has.
    """
    here, there = ({seen.key: seen for seen in side} for side in (source, target))
    young = {seen.key for seen in (*here.values(), *there.values()) if seen.at_ms >= until_ms}
    settled = (here.keys() | there.keys()) - young
    live, other = (
        {key: side[key].event_id for key in settled if key in side and not side[key].removes}
        for side in (here, there)
    )
    return Comparison(
        compared=len(settled),
        missing_on_target=_of_keys(live, other),
        missing_on_source=_of_keys(other, live),
    )


def _of_keys(
    side: Mapping[bytes | None, str], other: Mapping[bytes | None, str]
) -> tuple[str, ...]:
    differing = {key: event_id for key, event_id in side.items() if other.get(key) != event_id}
    return tuple(sorted(f"{_shown(key)}: {event_id}" for key, event_id in differing.items()))


def _shown(key: bytes | None) -> str:
    return "no key" if key is None else key.decode(errors="backslashreplace")


def _disordered(
    source: Sequence[Seen], target: Sequence[Seen], common: Collection[str]
) -> Iterable[str]:
    before, after = _sequences(source, common), _sequences(target, common)
    for key in before.keys() | after.keys():
        for one, other in zip(before.get(key, ()), after.get(key, ()), strict=False):
            if one != other:
                yield f"{_shown(key)}: {other} before {one}"
                break


def _sequences(side: Iterable[Seen], common: Collection[str]) -> Mapping[bytes | None, list[str]]:
    """The events of each key, in order; of a repeated one the first. What has no key has no order
    to keep."""
    sequences: dict[bytes | None, dict[str, None]] = defaultdict(dict)
    for seen in side:
        if seen.event_id in common and seen.key is not None:
            sequences[seen.key].setdefault(seen.event_id)
    return {key: list(ids) for key, ids in sequences.items()}


def _distinct(ids: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(ids))
