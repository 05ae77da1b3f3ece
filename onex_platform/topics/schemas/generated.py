"""JSON Schema of the platform's own topics, made from the models that read and write them."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel

from onex_platform.domain.envelope import PAYLOADS, ModelEventEnvelope
from onex_platform.domain.identity import REGISTRATION_DOMAIN
from onex_platform.domain.projection import ModelRegistrationSnapshot
from onex_platform.topics.contract import TopicContract
from onex_platform.topics.schemas.formats import DRAFT

_SNAPSHOTS: dict[str, type[BaseModel]] = {REGISTRATION_DOMAIN: ModelRegistrationSnapshot}


def generated_schema(contract: TopicContract) -> str | None:
    """The value schema of an onex topic; nothing for topics whose models are not ours."""
    kind = contract.event_kind
    if kind is not None:
        return _render(_enveloped(PAYLOADS[kind], kind.event_type))
    if contract.snapshot_of in _SNAPSHOTS:
        return _render(_SNAPSHOTS[contract.snapshot_of].model_json_schema())
    return None


def _enveloped(payload: type[BaseModel], event_type: str) -> dict[str, Any]:
    """The envelope's schema with that of one payload in it."""
    schema = ModelEventEnvelope.model_json_schema()
    inner = payload.model_json_schema(ref_template="#/$defs/{model}")
    definitions = inner.pop("$defs", {})
    schema["properties"]["payload"] = inner
    schema["properties"]["event_type"] = {"const": event_type, "type": "string"}
    return schema | ({"$defs": definitions} if definitions else {})


def _render(schema: dict[str, Any]) -> str:
    return json.dumps({"$schema": DRAFT, **schema}, indent=2, ensure_ascii=False) + "\n"
