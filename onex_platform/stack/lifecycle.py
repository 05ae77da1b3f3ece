"""Bringing the embedded servers up and down, and finding the ones that run.

Everything that changes a stack happens under its lock. What a call started is stopped again if the
call fails or is interrupted, whatever had been running before stays.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from onex_platform.errors import ConfigurationError, InfraTimeoutError, InfraUnavailableError
from onex_platform.settings import Settings
from onex_platform.stack import processes
from onex_platform.stack.kafka import KafkaServer
from onex_platform.stack.postgres import PostgresServer
from onex_platform.stack.server import Report, Server, port_is_free
from onex_platform.stack.site import Place, ServerRecord, Site, require_space

SERVERS: dict[str, Server] = {server.name: server for server in (PostgresServer(), KafkaServer())}
DEFAULT_SERVICES = ("postgres", "kafka")

_LOG_LINES_ON_FAILURE = 20
_START_ATTEMPTS = 3


@dataclass(frozen=True)
class ServerStatus:
    """One row of `onex stack status`."""

    name: str
    state: Literal["running", "not answering", "stopped", "external"]
    port: int | None = None
    pid: int | None = None


def up(
    settings: Settings,
    *,
    services: Sequence[str] = DEFAULT_SERVICES,
    report: Report = lambda _: None,
) -> Settings:
    """Start what does not run yet, wait until it answers, and give the attached settings."""
    start(settings, services=services, report=report)
    return attach(settings)


def start(settings: Settings, *, services: Sequence[str], report: Report) -> list[str]:
    """Start the services that do not run yet and name them; all of them answer then."""
    site = Site(settings)
    started: list[str] = []
    with site.locked():
        require_space(site.folder, settings)
        try:
            for server in map(_server, services):
                if server.is_external(settings):
                    report(f"{server.title}: the address in the settings is used")
                elif _serves(server, site):
                    report(f"{server.title} runs already")
                else:
                    started.append(server.name)
                    _start(server, site.place(server.name), report)
        except BaseException:
            for name in reversed(started):
                _stop(SERVERS[name], site)
            raise
    return started


def down(
    settings: Settings,
    *,
    services: Sequence[str] | None = None,
    delete_data: bool = False,
    report: Report = lambda _: None,
) -> None:
    """Stop the services (default: all), recorded or not; their data stays unless told otherwise."""
    site = Site(settings)
    if not site.folder.exists():
        return
    with site.locked():
        for server in reversed([_server(name) for name in services or SERVERS]):
            if _stop(server, site):
                report(f"{server.title} is stopped")
            if delete_data:
                shutil.rmtree(site.place(server.name).folder, ignore_errors=True)


def status(settings: Settings) -> list[ServerStatus]:
    """What each server is doing now; running ones are really asked."""
    site = Site(settings)
    records = site.records()
    rows = []
    for server in SERVERS.values():
        record = records.get(server.name)
        if server.is_external(settings):
            rows.append(ServerStatus(server.name, "external"))
        elif record is None or not record.runs():
            rows.append(ServerStatus(server.name, "stopped"))
        else:
            answers = server.answers(site.place(server.name), record)
            state: Literal["running", "not answering"] = "running" if answers else "not answering"
            rows.append(ServerStatus(server.name, state, record.port, record.pid))
    return rows


def attach(settings: Settings) -> Settings:
    """A copy of the settings with every address that is not set filled from the running stack."""
    site = Site(settings)
    records = site.records()
    for server in SERVERS.values():
        if server.is_external(settings):
            continue
        record = records.get(server.name)
        if record is not None and record.runs():
            settings = server.attach(settings, site.place(server.name), record)
        elif server.name in DEFAULT_SERVICES:
            raise InfraUnavailableError(
                f"The embedded {server.title} of {site.folder} is not running.",
                hint="Start it with `onex stack up`, or set the address of your own server.",
            )
    return settings


def _server(name: str) -> Server:
    try:
        return SERVERS[name]
    except KeyError:
        raise ConfigurationError(
            f"{name!r} is not a service of the stack.", hint=f"Choose from {', '.join(SERVERS)}."
        ) from None


def _serves(server: Server, site: Site) -> bool:
    record = site.records().get(server.name)
    return record is not None and record.runs() and server.answers(site.place(server.name), record)


def _start(server: Server, place: Place, report: Report) -> None:
    # Remains of a killed stack would hold the port and the data folder.
    _stop(server, place.site)
    place.folder.mkdir(parents=True, exist_ok=True)
    if place.log.exists():
        place.log.replace(place.log.with_name("log.1"))
    server.prepare(place, report)
    last = place.site.records().get(server.name)
    for attempt in range(_START_ATTEMPTS):
        ports = server.choose_ports(place.settings, last)
        report(f"Starting {server.title} on port {ports[0]}")
        process = processes.start(
            server.command(place, ports),
            cwd=place.folder,
            log=place.log,
            environment=server.environment(place.settings),
        )
        record = ServerRecord(pid=process.pid, started=process.create_time(), ports=ports)
        place.site.remember(server.name, record)
        if _await_answer(server, place, record):
            report(f"{server.title} answers on port {ports[0]}")
            return
        # Between choosing a port and binding it somebody else may have taken it.
        if all(map(port_is_free, ports)) or attempt == _START_ATTEMPTS - 1:
            break
    raise InfraUnavailableError(
        f"{server.title} stopped while it was starting.", hint=_log_hint(place)
    )


def _await_answer(server: Server, place: Place, record: ServerRecord) -> bool:
    """True once the server answers, false if it has ended before."""
    patience = place.settings.stack.start_timeout_seconds
    if not processes.wait_until(
        lambda: not record.runs() or server.answers(place, record), patience
    ):
        raise InfraTimeoutError(
            f"{server.title} did not answer within {patience:g} s of its start.",
            hint=_log_hint(place),
        )
    return record.runs()


def _stop(server: Server, site: Site) -> bool:
    """Stop every process of the server; whether there was one."""
    found = processes.marked(site.place(server.name).marker)
    record = site.records().get(server.name)
    if record and (known := processes.recorded(record.pid, record.started)):
        found.append(known)
    processes.stop(found, server.polite_signal)
    return bool(found)


def _log_hint(place: Place) -> str:
    return f"Its log, {place.log}, ends with:\n{place.log_tail(_LOG_LINES_ON_FAILURE)}"


@contextmanager
def running(
    settings: Settings,
    *,
    services: Sequence[str] = DEFAULT_SERVICES,
    report: Report = lambda _: None,
) -> Iterator[Settings]:
    """The stack for the length of a block; what this call started is stopped at its end."""
    started = start(settings, services=services, report=report)
    try:
        yield attach(settings)
    finally:
        if started:
            down(settings, services=started, report=report)
