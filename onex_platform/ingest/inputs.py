"""The topics that the registration log is made of: which they are, and how far each is read."""

from __future__ import annotations

from onex_platform.context import PlatformContext
from onex_platform.engines.kafka.topic_admin import topic_ids
from onex_platform.ingest.admission.fast_path import InputTopic
from onex_platform.ingest.cuts.consistent_cut import InputPartition, TopicIds
from onex_platform.ingest.offsets import consumer_offsets, read_topics
from onex_platform.topics.catalogue import Catalogue


def input_topics(catalogue: Catalogue) -> dict[str, InputTopic]:
    """The topics of the catalogue that the registration log is made of."""
    return {
        contract.topic: InputTopic(contract.event_kind, legacy=contract.legacy_of is not None)
        for contract in catalogue.registration_inputs()
        if contract.event_kind is not None
    }


def next_offsets(platform: PlatformContext) -> dict[InputPartition, int]:
    """The next offset of each input partition that was read before."""
    with platform.database.transaction() as cursor:
        offsets = consumer_offsets(cursor, platform.domain)
    return {InputPartition(*place): offset for place, offset in offsets.items()}


def input_ids(platform: PlatformContext) -> TopicIds:
    """Which topics were read, and which there are now."""
    with platform.database.transaction() as cursor:
        read = read_topics(cursor, platform.domain)
    topics = input_topics(platform.catalogue)
    return TopicIds(read, topic_ids(platform.kafka.admin(), topics.keys()))
