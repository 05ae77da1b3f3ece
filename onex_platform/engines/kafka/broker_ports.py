"""Whether a broker's port is open, before a client is made for it."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence

from onex_platform.base.errors import InfraConnectionError
from onex_platform.base.settings import Settings
from onex_platform.engines.kafka.errors import CHECK_ADDRESS


def await_port(settings: Settings) -> None:
    """Wait until a port is open: librdkafka would log every refused connection."""
    deadline = time.monotonic() + settings.kafka.connect_timeout_seconds
    while reason := _refusal(settings.kafka.addresses()):
        if time.monotonic() > deadline:
            raise InfraConnectionError(
                f"Kafka at {settings.kafka.bootstrap_servers} can't be reached: {reason}.",
                hint=CHECK_ADDRESS,
            )
        time.sleep(0.05)


def _refusal(addresses: Sequence[tuple[str, int]]) -> str | None:
    """Why no address accepts a connection; None if one does."""
    reason = None
    for address in addresses:
        try:
            with socket.create_connection(address, timeout=1):
                return None
        except OSError as error:
            reason = str(error)
    return reason
