"""Contracts for tests: valid ones, to be spoiled by one field."""

from __future__ import annotations

import re
import secrets
from typing import Any

from onex_platform.domain.events import EnumEventKind
from onex_platform.topics.catalogue import Catalogue
from onex_platform.topics.contract import TopicContract

EVENT_FIELDS: dict[str, Any] = {
    "topic": "onex.node.heartbeat.published.v1",
    "description": "A node says that it is alive.",
    "owner": "node-runtime",
    "category": "heartbeats",
    "producers": ["node"],
    "consumers": ["registry"],
    "key": "node_id",
    "partitions": 3,
    "retention": "PT1H",
    "cleanup_policy": "delete",
    "timestamp_type": "LogAppendTime",
    "registration_input": True,
    "sla": {"delivery": "PT5S", "availability": 99.9},
    "classification": "internal",
    "compatibility": "FORWARD",
    "deprecation": {"notice": "P90D"},
}
LEGACY_FIELDS = EVENT_FIELDS | {"topic": "node.heartbeat", "legacy_of": EVENT_FIELDS["topic"]}
SNAPSHOT_FIELDS = EVENT_FIELDS | {
    "topic": "onex.snapshot.platform.registration-snapshots.v1",
    "producers": ["registry"],
    "key": "entity_id",
    "snapshot_of": "registration",
    "retention": "unlimited",
    "cleanup_policy": "compact",
    "compaction": {
        "min_lag": "PT1M",
        "max_lag": "PT5M",
        "segment_size": "100MiB",
        "tombstones_stay": "P1D",
    },
    "registration_input": False,
}


def event(**fields: Any) -> TopicContract:
    return TopicContract.model_validate(EVENT_FIELDS | fields)


def legacy(**fields: Any) -> TopicContract:
    return TopicContract.model_validate(LEGACY_FIELDS | fields)


def snapshot(**fields: Any) -> TopicContract:
    return TopicContract.model_validate(SNAPSHOT_FIELDS | fields)


def with_own_topics(catalogue: Catalogue, *kinds: EnumEventKind) -> Catalogue:
    """The catalogue with other versions of these kinds' topics, which no other test writes to."""
    version = secrets.randbelow(10**8) + 2
    own = {
        topic: re.sub(r"v\d+$", f"v{version}", topic)
        for topic in (catalogue.for_kind(kind).topic for kind in kinds)
    }
    return Catalogue(
        contract.model_copy(
            update={
                "topic": own.get(contract.topic, contract.topic),
                "legacy_of": own.get(contract.legacy_of or "", contract.legacy_of),
            }
        )
        for contract in catalogue
    )
