"""A cluster that agrees with its contracts, and ways to spoil it."""

from __future__ import annotations

from onex_platform.engines.kafka.access import Right, grant, revoke
from onex_platform.engines.kafka.clients import open_admin
from onex_platform.engines.kafka.quotas import set_quotas
from onex_platform.engines.kafka.topic_admin import alter, delete
from onex_platform.engines.schema_registry import SchemaRegistry
from onex_platform.governance.cluster import apply, plan
from onex_platform.governance.cluster_plan import EnumDanger
from onex_platform.governance.governed import Governed

ALL_DANGERS = frozenset(EnumDanger)
# Contracts of the dialects onex and namespace, with schemas of keys and values.
FEW_TOPICS = (
    "onex.node.heartbeat.published.v1",
    "onex.node.introspection.published.v1",
    "onex.registry.node.accepted.v1",
    "platform.aud.dead-letters.v1",
)
# A schema that no contract has, and that every mode takes beside any other.
FOREIGN_SCHEMA = '{"$schema": "http://json-schema.org/draft-07/schema#", "title": "by hand"}'


def settle(governed: Governed) -> None:
    """Bring the cluster to its contracts, whatever a test before has left."""
    apply(governed, plan(governed), allowed=ALL_DANGERS)


def spoil(governed: Governed) -> None:
    """Leave something to do for every kind of step but the deletion of a topic."""
    first, second, *_ = sorted(governed.topics)
    with open_admin(governed.settings) as admin:
        alter(admin, first, {"retention.ms": "1000"})
        delete(admin, second)
        revoke(admin, [min(governed.wanted.rights or ())])
        grant(admin, [Right("User:onex-node", "topic", "prefixed", "onex.node.", "delete")])
    set_quotas(governed.settings, "onex-node", {"producer_byte_rate": 1.0})
    one, other, *_ = sorted(governed.wanted.subjects or ())
    registry = SchemaRegistry(governed.settings)
    registry.set_mode(one, "NONE")
    registry.delete(other)
