"""Topics in the asset graph: each contract as an external asset.

The platform neither owns the brokers nor runs them, so a topic is never materialised here; it is
the end of a line that other assets begin from. The key holds the topic's name, which is the same in
every environment.
"""

from __future__ import annotations

import dagster as dg

from onex_platform.topics.catalogue import Catalogue
from onex_platform.topics.contract import TopicContract

_GROUP = "topics"


def build_definitions(catalogue: Catalogue) -> dg.Definitions:
    return dg.Definitions(assets=[_external_asset(contract) for contract in catalogue])


def _external_asset(contract: TopicContract) -> dg.AssetSpec:
    return dg.AssetSpec(
        key=["kafka", contract.topic],
        group_name=_GROUP,
        kinds={"kafka"},
        owners=[f"team:{contract.owner}"],
        tags={"onex/category": contract.category.value},
        description="\n\n".join(filter(None, (contract.description, contract.warning))),
        metadata={
            "message key": contract.key,
            "partitions": contract.partitions,
            "retention": str(contract.retention or "unlimited"),
            "cleanup policy": contract.cleanup_policy,
            "timestamps": contract.timestamp_type,
            "direction": contract.direction,
            "producers": ", ".join(contract.producers),
            "consumers": ", ".join(contract.consumers),
        },
    )
