"""001's messages, compiled when first used: nothing generated is committed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

_FOLDER = "onex_platform/capture/proto"


@cache
def page_messages() -> Any:
    """The module of `EventPage` and what it is made of."""
    import grpc

    with _files_found():
        return grpc.protos(f"{_FOLDER}/page.proto")


@cache
def pubsub() -> tuple[Any, Any]:
    """The messages and the service classes of `PubSubBasicInterface`."""
    import grpc

    with _files_found():
        messages, services = grpc.protos_and_services(f"{_FOLDER}/pubsub.proto")
    return messages, services


@contextmanager
def _files_found() -> Iterator[None]:
    """gRPC looks for files along `sys.path`, where an editable install does not have ours."""
    root = str(Path(__file__).parents[3])
    sys.path.append(root)
    try:
        yield
    finally:
        sys.path.remove(root)
