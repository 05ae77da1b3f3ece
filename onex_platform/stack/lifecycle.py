"""Bringing the embedded servers up and down, and finding the ones that run.

Everything that changes a stack happens under its lock. What a call started is stopped again if the
call fails or is interrupted; whatever had been running before stays.
"""

from __future__ import annotations

import shutil
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Literal, NoReturn

import psutil

from onex_platform.base.errors import ConfigurationError, InfraTimeoutError, InfraUnavailableError
from onex_platform.base.settings import Settings
from onex_platform.stack import client_programs, processes
from onex_platform.stack.atomic_files import require_space
from onex_platform.stack.folders import ProcessIdentity, ServerFolder, ServerRecord, StackFolder
from onex_platform.stack.guardian import Guardian
from onex_platform.stack.ports import port_is_free
from onex_platform.stack.progress import Report, silent
from onex_platform.stack.servers.kafka_server import KafkaServer
from onex_platform.stack.servers.postgres_server import PostgresServer
from onex_platform.stack.servers.schemas_server import SchemasServer
from onex_platform.stack.servers.server import Server
from onex_platform.stack.servers.spark_server import SparkConnectServer

SERVERS: dict[str, Server] = {
    server.name: server
    for server in (PostgresServer(), KafkaServer(), SparkConnectServer(), SchemasServer())
}
DEFAULT_SERVICES = ("postgres", "kafka")

_ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
_START_ATTEMPTS = 3
_SUPERVISION_SECONDS = 1.0


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
    report: Report = silent,
) -> Settings:
    """Start what does not run yet, wait until it answers, and give the attached settings."""
    with guarded(settings, services=services, report=report):
        _keep(StackFolder(settings), services)
    return attach(settings, services=services)


@contextmanager
def running(
    settings: Settings,
    *,
    services: Sequence[str] = DEFAULT_SERVICES,
    report: Report = silent,
) -> Iterator[Settings]:
    """The attached settings for the length of a block; what was started for it is stopped then."""
    with guarded(settings, services=services, report=report):
        yield attach(settings, services=services)


@contextmanager
def guarded(settings: Settings, *, services: Sequence[str], report: Report) -> Iterator[Guardian]:
    """All services answer in this block; its end stops those that were started for it."""
    stack = StackFolder(settings)
    wanted = [_server(name) for name in services]
    with _interrupted_by_signals(), Guardian(stack.path) as guardian:
        with stack.locked():
            missing = [server for server in wanted if _is_missing(server, stack, report)]
            # All that can be known to fail fails before the first server runs.
            ports = {}
            for server in missing:
                guardian.watch(server.name)
                ports[server.name] = _prepare(server, stack.server(server.name), report)
            for server in missing:
                folder = stack.server(server.name)
                _start(server, folder, ports[server.name], guardian.starter, report)
        yield guardian


def supervise(settings: Settings, *, services: Sequence[str]) -> NoReturn:
    """Wait until one of the embedded servers ends, and say so with the end of its log."""
    stack = StackFolder(settings)
    embedded = [server for server in map(_server, services) if not server.is_external(settings)]
    while True:
        for server in embedded:
            record = stack.server(server.name).record()
            if record is None or not record.runs():
                raise InfraUnavailableError(
                    f"{server.title} has ended.", hint=stack.server(server.name).log_hint()
                )
        time.sleep(_SUPERVISION_SECONDS)


def down(
    settings: Settings,
    *,
    services: Sequence[str] | None = None,
    delete_data: bool = False,
    report: Report = silent,
) -> None:
    """Stop the services, by default everything that belongs to the stack; data stays unless told.

    Also stopped are processes that no state file knows, left by a command that was killed.
    """
    stack = StackFolder(settings)
    if not stack.path.exists():
        return
    if services is None:
        if client_programs.stop(client_programs.marker(stack.path)):
            report("dagster is stopped")
        if delete_data:
            shutil.rmtree(stack.dagster_home, ignore_errors=True)
    with stack.locked():
        for name in reversed(tuple(SERVERS) if services is None else services):
            if _stop(stack.server(name)):
                report(f"{name} is stopped")
            if delete_data:
                shutil.rmtree(stack.server(name).path, ignore_errors=True)


def stop_started_by(
    starter: ProcessIdentity, *, settings: Settings, services: Sequence[str]
) -> None:
    """Stop what `starter` left behind, its clients first, but nobody else's services."""
    stack = StackFolder(settings)
    client_programs.stop(client_programs.marker(stack.path, starter), starter=starter)

    def stop_left_behind(folder: ServerFolder) -> None:
        record = folder.record()
        if record is None or not record.runs() or record.starter == starter:
            _stop(folder)

    # All at once: none of them needs another to end, and each takes its time to write to disk.
    with stack.locked(), ThreadPoolExecutor() as pool:
        list(pool.map(stop_left_behind, map(stack.server, services)))


def status(settings: Settings) -> list[ServerStatus]:
    """What each server is doing now; running ones are really asked."""
    return [
        _status(server, StackFolder(settings).server(server.name)) for server in SERVERS.values()
    ]


def attach(settings: Settings, *, services: Sequence[str] = DEFAULT_SERVICES) -> Settings:
    """A copy of the settings with every address that is not set filled from the running stack.

    The services named must run; others are attached if they do.
    """
    attached = settings
    for server in SERVERS.values():
        folder = StackFolder(settings).server(server.name)
        record = folder.record()
        if server.is_external(settings):
            continue
        if record is not None and record.runs():
            attached = server.attach(attached, folder, record)
        elif server.name in services:
            raise InfraUnavailableError(
                f"The embedded {server.title} of {folder.stack.path} is not running.",
                hint="Start it with `onex stack up`, or set the address of your own server.",
            )
    return attached


def _server(name: str) -> Server:
    if name not in SERVERS:
        raise ConfigurationError(
            f"{name!r} is not a service of the stack.", hint=f"Choose from {', '.join(SERVERS)}."
        )
    return SERVERS[name]


def _status(server: Server, folder: ServerFolder) -> ServerStatus:
    record = folder.record()
    if server.is_external(folder.settings):
        return ServerStatus(server.name, "external")
    if record is None or not record.runs():
        return ServerStatus(server.name, "stopped")
    answers = server.answers(server.attach(folder.settings, folder, record))
    return ServerStatus(
        server.name, "running" if answers else "not answering", record.port, record.process.pid
    )


def _keep(stack: StackFolder, services: Sequence[str]) -> None:
    """From now on these servers are meant to stay, whoever started them."""
    with stack.locked():
        for name, record in stack.records().items():
            if name in services:
                stack.remember(name, record.model_copy(update={"starter": None}))


def _is_missing(server: Server, stack: StackFolder, report: Report) -> bool:
    if server.is_external(stack.settings):
        report(f"{server.title}: the address in the settings is used")
        return False
    if server.serves(stack.server(server.name)):
        report(f"{server.title} runs already")
        return False
    return True


def _prepare(server: Server, folder: ServerFolder, report: Report) -> tuple[int, ...]:
    """Bring everything that a start needs, and choose the ports for it."""
    # What is left of a killed stack would hold the port and the data folder.
    _stop(folder)
    folder.path.mkdir(parents=True, exist_ok=True)
    require_space(folder.path, folder.settings.stack)
    if folder.log.exists():
        folder.log.replace(folder.log.with_name("log.1"))
    ports = server.choose_ports(folder.settings, folder.record())
    server.prepare(folder, report)
    return ports


def _start(
    server: Server,
    folder: ServerFolder,
    ports: tuple[int, ...],
    starter: ProcessIdentity,
    report: Report,
) -> None:
    for _ in range(_START_ATTEMPTS):
        report(f"Starting {server.title} on port {ports[0]}")
        if _answers_after_start(server, folder, ports, starter):
            report(f"{server.title} answers")
            return
        if all(map(port_is_free, ports)):
            break
        # Between our choice of a port and the server's use of it somebody else took it.
        ports = server.choose_ports(folder.settings, folder.record())
    raise InfraUnavailableError(
        f"{server.title} ended while it was starting.", hint=folder.log_hint()
    )


def _answers_after_start(
    server: Server, folder: ServerFolder, ports: tuple[int, ...], starter: ProcessIdentity
) -> bool:
    """Start the server and wait for its first answer; false if it ended before."""
    process = processes.start(
        server.command(folder, ports),
        cwd=folder.path,
        log=folder.log,
        environment=server.environment(folder.settings),
    )
    record = ServerRecord(process=ProcessIdentity.of(process), ports=ports, starter=starter)
    folder.stack.remember(server.name, record)
    patience = folder.settings.stack.start_timeout_seconds
    if not processes.wait_until(lambda: not record.runs() or server.serves(folder), patience):
        raise InfraTimeoutError(
            f"{server.title} did not answer within {patience:g} s of its start.",
            hint=folder.log_hint(),
        )
    return record.runs()


def _stop(folder: ServerFolder) -> bool:
    """Stop every process of a server; whether there was one."""
    found = processes.marked(folder.marker)
    record = folder.record()
    if record and (known := record.process.find()):
        found.append(known)
    server = SERVERS.get(folder.name)
    try:
        processes.stop(found, signal.SIGTERM if server is None else server.polite_signal)
    except psutil.AccessDenied as error:
        raise ConfigurationError(
            f"The {folder.name} of {folder.stack.path} was started by another user.",
            hint="Run the command as that user, or point ONEX_STACK_FOLDER to a folder of yours.",
        ) from error
    return bool(found)


@contextmanager
def _interrupted_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end the block as Ctrl-C does, so that we leave nothing behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    # One that is ignored (nohup) or handled by somebody else stays so.
    ours = [number for number in _ENDING_SIGNALS if signal.getsignal(number) == signal.SIG_DFL]
    for number in ours:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)
