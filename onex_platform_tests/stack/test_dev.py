"""`onex stack dev` opens Dagster on the stack and takes everything down with it, in order."""

from __future__ import annotations

import signal
import socket
import subprocess
import time

import psycopg
import pytest

from onex_platform import stack
from onex_platform.base.errors import ConfigurationError, InfraUnavailableError
from onex_platform.base.settings import PostgresSettings, Settings
from onex_platform.domain.events import EnumEventKind
from onex_platform.stack import client_programs
from onex_platform.stack.dev import develop
from onex_platform.stack.ports import LOOPBACK, free_port
from onex_platform.stack.processes import GRACE_SECONDS, wait_until
from onex_platform.topics.catalogue import load_catalogue
from onex_platform_tests.support.broker import send, sent
from onex_platform_tests.support.own_stacks import NewStack, dagster_answers, onex
from onex_platform_tests.support.stacks import processes_of
from onex_platform_tests.support.waiting import eventually

pytestmark = [pytest.mark.servers, pytest.mark.long]

_FINISHED = {"CANCELED", "FAILURE", "SUCCESS"}


def opened(settings: Settings) -> subprocess.Popen[str]:
    """`onex stack dev`, whose web interface answers."""
    port = free_port()
    command = onex(settings, "stack", "dev", "--port", str(port))
    assert wait_until(
        lambda: command.poll() is not None or dagster_answers(port), 240, interval_seconds=0.2
    )
    assert command.poll() is None, command.communicate()
    return command


def draining_runs(attached: Settings) -> list[str]:
    """The states of the draining runs, as Dagster's database has them."""
    url = attached.postgres.dagster_url
    assert url is not None
    query = "SELECT status FROM runs WHERE pipeline_name = 'drain_registration'"
    with psycopg.connect(url.get_secret_value().replace("+psycopg2", "")) as connection:
        return [status for (status,) in connection.execute(query)]


def end(command: subprocess.Popen[str], number: signal.Signals) -> str:
    """Send the signal and wait for the end; everything that the command has said."""
    began = time.monotonic()
    command.send_signal(number)
    said, complained = command.communicate(timeout=120)
    # Less than what a server alone is given to end; without load it is a third of it.
    assert time.monotonic() - began < GRACE_SECONDS
    assert command.returncode == 0
    return said + complained


def test_dagster_runs_on_the_stack_and_ends_with_the_command(new_stack: NewStack) -> None:
    settings = new_stack()
    command = opened(settings)
    assert client_programs.find(client_programs.marker(settings.stack.folder.resolve())) != []
    assert "Traceback" not in end(command, signal.SIGINT)
    assert processes_of(settings) == []


@pytest.mark.parametrize(
    ("status", "number"),
    [("STARTED", signal.SIGINT), ("STARTED", signal.SIGTERM), ("STARTING", signal.SIGTERM)],
)
def test_a_run_in_flight_ends_before_its_servers(
    new_stack: NewStack, status: str, number: signal.Signals
) -> None:
    settings = new_stack()
    command = opened(settings)
    attached = stack.attach(settings)
    send(attached, [sent(EnumEventKind.NODE_INTROSPECTION, "a")])
    assert wait_until(lambda: status in draining_runs(attached), 120)
    assert "Traceback" not in end(command, number)
    assert processes_of(settings) == []
    if status == "STARTED":
        # It could still say so: PostgreSQL was there until it had.
        with stack.running(settings, services=("postgres",)) as again:
            assert set(draining_runs(again)) <= _FINISHED


def test_a_second_interrupt_leaves_nothing_behind(new_stack: NewStack) -> None:
    settings = new_stack()
    command = opened(settings)
    whole = len(processes_of(settings))
    command.send_signal(signal.SIGINT)
    assert eventually(lambda: len(processes_of(settings)) < whole)  # it has begun to end
    said = end(command, signal.SIGINT)
    assert "Traceback" not in said
    assert wait_until(lambda: processes_of(settings) == [], 60)


def test_an_occupied_port_is_named_before_anything_starts(new_stack: NewStack) -> None:
    settings = new_stack()
    with socket.create_server((LOOPBACK, 0)) as rival:
        port = rival.getsockname()[1]
        with pytest.raises(InfraUnavailableError, match=f"Port {port} for Dagster") as caught:
            develop(
                settings, load_catalogue(), services=("postgres",), port=port, report=lambda _: None
            )
    assert "--port" in str(caught.value)
    assert processes_of(settings) == []


def test_dagster_needs_a_database_of_its_own(new_stack: NewStack) -> None:
    url = "postgresql+psycopg://somebody@db.example/onex"
    settings = new_stack().model_copy(
        update={"postgres": PostgresSettings.model_validate({"url": url})}
    )
    with pytest.raises(ConfigurationError, match="no database for Dagster"):
        develop(
            settings, load_catalogue(), services=("kafka",), port=free_port(), report=lambda _: None
        )
    assert processes_of(settings) == []
