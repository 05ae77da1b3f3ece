"""Which topic and partition an event goes to; the names come from the catalogue."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import NamedTuple

from onex_platform.domain.events import EnumEventKind
from onex_platform.topics.catalogue import Catalogue


class Route(NamedTuple):
    """Where events of a kind go, and whether the broker's clock stamps them there."""

    topic: str
    partitions: int
    append_time: bool


# (kind, legacy) -> route; a kind without a legacy twin has no entry for it.
Routes = Mapping[tuple[EnumEventKind, bool], Route]


def routes_of(catalogue: Catalogue) -> Routes:
    """The routes to every event topic of the catalogue."""
    contracts = {(kind, False): catalogue.for_kind(kind) for kind in EnumEventKind}
    for contract in catalogue.legacy():
        if contract.event_kind is not None:
            contracts[contract.event_kind, True] = contract
    return {
        key: Route(contract.topic, contract.partitions, contract.timestamp_type == "LogAppendTime")
        for key, contract in contracts.items()
    }


def key_hash(key: bytes) -> int:
    """A record's partition is the remainder of this, as librdkafka's partitioner does it."""
    return zlib.crc32(key)
