"""What every embedded server has in common: the steps that `lifecycle` takes it through."""

from __future__ import annotations

import shutil
import signal
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from onex_platform.errors import InfraUnavailableError
from onex_platform.settings import Settings
from onex_platform.stack.java import java_environment
from onex_platform.stack.site import Place, ServerRecord

LOOPBACK = "127.0.0.1"

Report = Callable[[str], None]


class Server(ABC):
    """One kind of server; it keeps no state of its own, everything is in its `Place`."""

    name: str
    title: str
    port_count = 1
    polite_signal = signal.SIGTERM

    @abstractmethod
    def is_external(self, settings: Settings) -> bool:
        """Whether the user named an address, so that the embedded server is not wanted."""

    @abstractmethod
    def prepare(self, place: Place, report: Report) -> None:
        """Bring what the first start needs: jars, a formatted data folder. Idempotent."""

    @abstractmethod
    def command(self, place: Place, ports: tuple[int, ...]) -> list[str]:
        """The command line; `place.marker` stands in it."""

    @abstractmethod
    def answers(self, place: Place, record: ServerRecord) -> bool:
        """Whether the server does real work for a client now."""

    @abstractmethod
    def attach(self, settings: Settings, place: Place, record: ServerRecord) -> Settings:
        """`settings` with this server's addresses where none is set."""

    def environment(self, settings: Settings) -> dict[str, str]:
        return java_environment(settings)

    def fixed_port(self, settings: Settings) -> int | None:
        port: int | None = getattr(settings.stack, f"{self.name}_port")
        return port

    def choose_ports(self, settings: Settings, last: ServerRecord | None) -> tuple[int, ...]:
        """The port that the settings name, else the last ones if they are free, else free ones."""
        wanted: list[int | None] = list(last.ports) if last else [None] * self.port_count
        if (fixed := self.fixed_port(settings)) is not None:
            if not port_is_free(fixed):
                raise InfraUnavailableError(
                    f"Port {fixed} for {self.title} is occupied by another process.",
                    hint=f"Stop that process, or change or unset "
                    f"ONEX_STACK_{self.name.upper()}_PORT.",
                )
            wanted[0] = fixed
        return tuple(
            port if port is not None and port_is_free(port) else free_port() for port in wanted
        )


def port_is_free(port: int) -> bool:
    with closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def port_is_open(port: int) -> bool:
    """Whether somebody listens there; asked before a client that would log each refusal."""
    with closing(socket.socket()) as probe:
        return probe.connect_ex((LOOPBACK, port)) == 0


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
    return port


def make_whole(folder: Path, build: Callable[[Path], None]) -> None:
    """Create `folder` through `build`, entirely or not at all, also when we are killed half-way."""
    if folder.exists():
        return
    draft = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(mode=0o700)
    build(draft)
    draft.replace(folder)
