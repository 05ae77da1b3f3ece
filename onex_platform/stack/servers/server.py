"""What every embedded server has in common: the steps that `lifecycle` takes it through."""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod

from onex_platform.base.settings import Settings
from onex_platform.stack.folders import ServerFolder, ServerRecord
from onex_platform.stack.java import java_environment
from onex_platform.stack.ports import free_port, port_is_free, require_free_port
from onex_platform.stack.progress import Report


class Server(ABC):
    """One kind of server; it keeps no state of its own, everything is in its folder."""

    name: str
    title: str
    port_count = 1
    polite_signal = signal.SIGTERM

    @abstractmethod
    def is_external(self, settings: Settings) -> bool:
        """Whether the settings name an address, so that the embedded server is not wanted."""

    @abstractmethod
    def prepare(self, folder: ServerFolder, report: Report) -> None:
        """Bring what a start needs: jars, a formatted data folder. Idempotent."""

    @abstractmethod
    def command(self, folder: ServerFolder, ports: tuple[int, ...]) -> list[str]:
        """The command line; `folder.marker` stands in it."""

    @abstractmethod
    def attach(self, settings: Settings, folder: ServerFolder, record: ServerRecord) -> Settings:
        """`settings` with this server's addresses where none is set."""

    @abstractmethod
    def answers(self, attached: Settings) -> bool:
        """Whether the server does real work for a client that has these settings."""

    def environment(self, settings: Settings) -> dict[str, str]:
        return java_environment(settings)

    def serves(self, folder: ServerFolder) -> bool:
        """Whether the recorded process lives, will go on living, and answers."""
        record = folder.record()
        return (
            record is not None
            and record.runs()
            and not record.is_abandoned()
            and self.answers(self.attach(folder.settings, folder, record))
        )

    def choose_ports(self, settings: Settings, last: ServerRecord | None) -> tuple[int, ...]:
        """The port that the settings name, else the last ones if they are free, else free ones."""
        wanted: list[int | None] = [*last.ports] if last else [None] * self.port_count
        fixed: int | None = getattr(settings.stack, f"{self.name}_port")
        if fixed is not None:
            variable = f"ONEX_STACK_{self.name.upper()}_PORT"
            require_free_port(fixed, self.title, way_out=f"change or unset {variable}")
            wanted[0] = fixed
        return tuple(
            port if port is not None and port_is_free(port) else free_port() for port in wanted
        )
