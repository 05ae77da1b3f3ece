"""Quotas of accounts, through kafka-python: librdkafka's client has no messages for them.

The broker's own command takes three seconds a call; this takes a few hundredths. What it needs of
kafka-python is private there, so its version is pinned and only this module knows it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaError
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError as PythonKafkaError
from kafka.protocol.admin.client_quotas import (
    AlterClientQuotasRequest,
    DescribeClientQuotasRequest,
)

from onex_platform.base.errors import InfraConnectionError
from onex_platform.base.server_settings import reveal
from onex_platform.base.settings import Settings
from onex_platform.engines.kafka.errors import translate

_USER = "user"
_ANY_SPECIFIED = 2  # how a request asks for every entity that has a name

# account -> quota's name -> bytes per second
Quotas = dict[str, dict[str, float]]


def quotas(settings: Settings) -> Quotas:
    """The quotas of every account that has some."""
    with _client(settings) as ask:
        request = DescribeClientQuotasRequest(
            components=[
                DescribeClientQuotasRequest.ComponentData(
                    entity_type=_USER, match_type=_ANY_SPECIFIED, match=None
                )
            ],
            strict=True,
        )
        answer = ask(request)
        _require_success(settings, answer.error_code, answer.error_message, "list its quotas")
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
    with _client(settings) as ask:
        for found in ask(request).entries:
            action = f"set quotas of {account}"
            _require_success(settings, found.error_code, found.error_message, action)


@contextmanager
def _client(settings: Settings) -> Iterator[Any]:
    kafka = settings.kafka
    security: dict[str, Any] = {"security_protocol": kafka.security_protocol}
    if kafka.sasl_mechanism is not None:
        security |= {
            "sasl_mechanism": kafka.sasl_mechanism,
            "sasl_plain_username": kafka.sasl_username,
            "sasl_plain_password": reveal(kafka.sasl_password),
        }
    if kafka.ssl_ca_location is not None:
        security["ssl_cafile"] = str(kafka.ssl_ca_location)
    if kafka.ssl_certificate_location is not None:
        security["ssl_certfile"] = str(kafka.ssl_certificate_location)
    if kafka.ssl_key_location is not None:
        security["ssl_keyfile"] = str(kafka.ssl_key_location)
        security["ssl_password"] = reveal(kafka.ssl_key_password)
    try:
        client = KafkaAdminClient(
            bootstrap_servers=[f"{host}:{port}" for host, port in kafka.addresses()],
            client_id=kafka.client_id,
            request_timeout_ms=int(kafka.request_timeout_seconds * 1000),
            **security,
        )
        try:
            yield lambda request: client._manager.run(client._manager.send, request)
        finally:
            client.close()
    except PythonKafkaError as error:
        raise InfraConnectionError(
            f"Kafka at {kafka.bootstrap_servers} did not answer about quotas: {error}."
        ) from error


def _require_success(settings: Settings, code: int, message: str | None, action: str) -> None:
    service = f"Kafka at {settings.kafka.bootstrap_servers}"
    if code:
        raise translate(KafkaError(code, message), service, action, settings.kafka.sasl_username)
