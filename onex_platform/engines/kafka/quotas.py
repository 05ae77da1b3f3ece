"""Quotas of accounts, for which librdkafka's client has no messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka.errors import for_code
from kafka.protocol.admin.client_quotas import (
    AlterClientQuotasRequest,
    DescribeClientQuotasRequest,
)

from onex_platform.base.settings import Settings
from onex_platform.engines.kafka.python_client import open_python_client

_USER = "user"
_ANY_SPECIFIED = 2  # how a request asks for every entity that has a name

# account -> quota's name -> bytes per second
Quotas = dict[str, dict[str, float]]


def quotas(settings: Settings) -> Quotas:
    """The quotas of every account that has some."""
    request = DescribeClientQuotasRequest(
        components=[
            DescribeClientQuotasRequest.ComponentData(
                entity_type=_USER, match_type=_ANY_SPECIFIED, match=None
            )
        ],
        strict=True,
    )
    answer = _ask(settings, "list its quotas", request)
    return {
        entry.entity[0].entity_name: {value.key: value.value for value in entry.values}
        for entry in answer.entries or ()
    }


def set_quotas(settings: Settings, account: str, wanted: Mapping[str, float | None]) -> None:
    """Set these quotas of an account; None takes one away."""
    entry = AlterClientQuotasRequest.EntryData
    request = AlterClientQuotasRequest(
        entries=[
            entry(
                entity=[entry.EntityData(entity_type=_USER, entity_name=account)],
                ops=[
                    entry.OpData(key=key, value=value or 0.0, remove=value is None)
                    for key, value in wanted.items()
                ],
            )
        ],
        validate_only=False,
    )
    _ask(settings, f"set quotas of {account}", request)


def _ask(settings: Settings, action: str, request: Any) -> Any:
    """Send a request; an answer that is an error, as a whole or of an entry, is raised."""
    with open_python_client(settings, action) as client:
        answer = client._manager.run(client._manager.send, request)
        for part in (answer, *(answer.entries or ())):
            if code := getattr(part, "error_code", 0):
                raise for_code(code)(part.error_message)
    return answer
