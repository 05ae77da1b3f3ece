"""kafka-python's client, for what librdkafka's lacks (quotas) or hides (refused rights).

The broker's own commands take three seconds a call; this takes a few hundredths. What quotas need
of kafka-python is private there, so its version is pinned.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaError
from kafka.admin import KafkaAdminClient
from kafka.errors import BrokerResponseError
from kafka.errors import KafkaError as PythonKafkaError

from onex_platform.base.errors import InfraConnectionError
from onex_platform.base.server_settings import reveal
from onex_platform.base.settings import Settings
from onex_platform.engines.kafka.errors import translate

# It tells of every connection that it opens and closes.
logging.getLogger("kafka").setLevel(logging.WARNING)


@contextmanager
def open_python_client(settings: Settings, action: str) -> Iterator[KafkaAdminClient]:
    """A client for the length of a block, whose errors leave it as ours.

    `action` completes the sentence "Kafka could not …".
    """
    kafka = settings.kafka
    try:
        client = KafkaAdminClient(
            bootstrap_servers=[f"{host}:{port}" for host, port in kafka.addresses()],
            client_id=kafka.client_id,
            request_timeout_ms=int(kafka.request_timeout_seconds * 1000),
            **_security(settings),
        )
        try:
            yield client
        finally:
            client.close()
    except BrokerResponseError as error:
        told = KafkaError(error.errno, str(error.args[0]) if error.args else error.description)
        raise translate(
            told, f"Kafka at {kafka.bootstrap_servers}", action, kafka.sasl_username
        ) from error
    except PythonKafkaError as error:
        raise InfraConnectionError(
            f"Kafka at {kafka.bootstrap_servers} did not {action}: {error}."
        ) from error


def _security(settings: Settings) -> dict[str, Any]:
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
    return security
