"""Ports on the loopback address, the only one where embedded servers listen."""

from __future__ import annotations

import socket
from contextlib import closing

from onex_platform.base.errors import InfraUnavailableError

LOOPBACK = "127.0.0.1"


def port_is_free(port: int) -> bool:
    """Whether a server could listen there; connections that are winding down don't count."""
    with closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def require_free_port(port: int, owner: str, *, way_out: str) -> None:
    """Refuse to start `owner` on a port that another process has."""
    if not port_is_free(port):
        raise InfraUnavailableError(
            f"Port {port} for {owner} is occupied by another process.",
            hint=f"Stop that process, or {way_out}.",
        )


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
    return port
