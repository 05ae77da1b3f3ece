"""001's messages, compiled when first used: nothing generated is committed."""

from __future__ import annotations

from functools import cache
from typing import Any

_FOLDER = "onex_platform/capture/proto"


@cache
def page_messages() -> Any:
    """The module of `EventPage` and what it is made of."""
    import grpc

    return grpc.protos(f"{_FOLDER}/page.proto")


@cache
def pubsub() -> tuple[Any, Any]:
    """The messages and the service classes of `PubSubBasicInterface`."""
    import grpc

    messages, services = grpc.protos_and_services(f"{_FOLDER}/pubsub.proto")
    return messages, services
