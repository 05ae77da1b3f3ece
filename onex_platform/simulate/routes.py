"""Which topic and partition an event goes to; the names come from the catalogue."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import NamedTuple

from onex_platform.domain.events import EnumEventKind
from onex_platform.topics.catalogue import Catalogue, Outlet


class Route(NamedTuple):
    """Where events of a kind go, whether the broker's clock stamps them there, and what their
    values become where another version is spoken."""

    topic: str
    partitions: int
    append_time: bool
    spoken: Callable[[bytes], bytes] = bytes


# (kind, legacy) -> route; a kind without a legacy twin, or whose twin is left, has no entry for it.
Routes = Mapping[tuple[EnumEventKind, bool], Route]


def routes_of(catalogue: Catalogue) -> Routes:
    """The routes to every event topic of the catalogue that is still written."""
    outlets = {(kind, False): catalogue.outlets(kind)[0] for kind in EnumEventKind}
    for kind in EnumEventKind:
        for outlet in catalogue.legacy_outlets(kind):
            outlets[kind, True] = outlet
    return {key: _route(outlet) for key, outlet in outlets.items()}


def _route(outlet: Outlet) -> Route:
    contract = outlet.contract
    append_time = contract.timestamp_type == "LogAppendTime"
    return Route(contract.topic, contract.partitions, append_time, outlet.value)


def key_hash(key: bytes) -> int:
    """A record's partition is the remainder of this, as librdkafka's partitioner does it."""
    return zlib.crc32(key)
