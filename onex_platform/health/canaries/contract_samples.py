"""Samples: which topics get one, and the record that is made of a contract's sample.

A sample is what its contract says, under an event id of its own, with the header that lets readers
pass it by. It says nothing: whoever counts or keeps events leaves it out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from onex_platform.base.errors import ConfigurationError
from onex_platform.base.paths import project_folder
from onex_platform.base.settings import Settings
from onex_platform.domain.headers import CANARY
from onex_platform.engines.kafka.clients import KafkaRecord
from onex_platform.engines.schema_registry import SchemaRegistry
from onex_platform.migration.event_ids import EVENT_ID
from onex_platform.records.wrapping import Wrapper
from onex_platform.topics.catalogue import Catalogue
from onex_platform.topics.contract import TopicContract
from onex_platform.topics.contract_folders import folder_of
from onex_platform.topics.grammar import OnexName
from onex_platform.topics.migration_intent import EnumMigrationPhase
from onex_platform.topics.policy import Policy, load_policy
from onex_platform.topics.schemas.formats import AvroSchema, JsonSchema, SchemaPair

_EVENTS = "evt"
# Nobody may write a topic any more that has come so far.
_CLOSED = frozenset({EnumMigrationPhase.FREEZE, EnumMigrationPhase.RETIRED})
_FRAME = b"\x00"  # what a registry's serialisers begin with; the schema's id follows


@dataclass(frozen=True, slots=True)
class SampledTopic:
    """A topic that gets samples: its contract, and what the broker calls it."""

    contract: TopicContract
    topic: str


def sampled_topics(settings: Settings, catalogue: Catalogue) -> Iterator[SampledTopic]:
    """Topics of events that the log does not read, of the settings' tenant and environment.

    A contract opts out by `canary: false`.
    """
    policy = load_policy()
    wanted = {str(contract.name): contract for contract in catalogue if _is_sampled(contract)}
    names = [wanted[name].name for name in wanted if catalogue.phase(name) not in _CLOSED]
    for name, tenant, topic in policy.topics_in(names, settings.environment):
        if tenant == settings.tenant:
            yield SampledTopic(wanted[str(name)], topic)


def sample_record(
    settings: Settings, to: SampledTopic, event_id: UUID, now: datetime, partition: int
) -> KafkaRecord:
    """The sample of a topic; its place is given, since nobody handles it in order.

    Raises if the contract has no sample, or one that can't be written.
    """
    value = _sample_of(to.contract)
    rules = replace(to.contract.publish_rules, topic=to.topic)
    wrapper = Wrapper(settings)
    more = [(CANARY, "sample"), (EVENT_ID, str(event_id))]
    if isinstance(to.contract.name, OnexName):
        event = value | {
            "event_id": str(event_id),
            "correlation_id": str(event_id),
            "timestamp": now.isoformat(),
            "tenant": settings.tenant,
        }
        key = str((event | event["payload"]).get(to.contract.key, event_id))
        record = wrapper.wrap(rules, key, json.dumps(event), more=more)
    elif rules.private_fields:
        raise ConfigurationError(
            f"Topic {to.topic} has private fields, and its values are no envelopes.",
            hint="Set `canary: false` in its contract.",
        )
    else:
        key = str(value.get(to.contract.key, event_id))
        record = wrapper.wrap_value(rules, key, _encoded(settings, to, value), event_id, more=more)
    return record._replace(partition=partition)


def _is_sampled(contract: TopicContract) -> bool:
    is_event = isinstance(contract.name, OnexName) or contract.stream_class == _EVENTS
    return is_event and contract.canary and not contract.registration_input


def _folder(contract: TopicContract, policy: Policy) -> Path:
    return project_folder("contracts") / folder_of(contract.name, policy.is_onex_entity)


def _sample_of(contract: TopicContract) -> dict[str, Any]:
    found = sorted(_folder(contract, load_policy()).glob("samples/*.json"))
    if not found:
        raise ConfigurationError(
            f"Topic {contract.topic} has no sample.", hint="Put one into samples/ of its contract."
        )
    sample: dict[str, Any] = json.loads(found[0].read_text(encoding="utf-8"))
    return sample


def _encoded(settings: Settings, to: SampledTopic, value: Mapping[str, Any]) -> bytes:
    """The value as the topic's readers expect it; with a registry, by its schema's id."""
    folder = _folder(to.contract, load_policy())
    schema = SchemaPair.of({path.name: path for path in folder.iterdir()}).the("value")
    if isinstance(schema, JsonSchema):
        return json.dumps(value).encode()
    if not isinstance(schema, AvroSchema):
        raise ConfigurationError(
            f"No sample can be made for {to.topic}: its schema is neither Avro nor JSON.",
            hint="Set `canary: false` in its contract.",
        )
    encoded = schema.encode(value)
    if settings.schemas.url is None:
        return encoded
    known = SchemaRegistry(settings).newest(f"{to.topic}-value")
    if known is None:
        return encoded
    return _FRAME + known.id.to_bytes(4, "big") + encoded
