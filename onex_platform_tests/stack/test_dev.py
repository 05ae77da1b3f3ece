"""`onex stack dev` opens Dagster on the stack and takes everything down with it."""

from __future__ import annotations

import signal
import socket
from urllib.error import URLError
from urllib.request import urlopen

import psutil
import pytest

from onex_platform.errors import ConfigurationError, InfraUnavailableError
from onex_platform.settings import PostgresSettings
from onex_platform.stack.dev import develop
from onex_platform.stack.folders import StackFolder
from onex_platform.stack.ports import LOOPBACK, free_port
from onex_platform.stack.processes import lives, wait_until
from onex_platform_tests.stack.conftest import NewStack, onex
from onex_platform_tests.stacks import processes_of

pytestmark = pytest.mark.servers


def dagster_answers(port: int) -> bool:
    try:
        with urlopen(f"http://{LOOPBACK}:{port}/server_info", timeout=5) as answer:
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False


def test_dagster_runs_on_the_stack_and_ends_with_the_command(new_stack: NewStack) -> None:
    settings, port = new_stack(), free_port()
    command = onex(settings, "stack", "dev", "--port", str(port))
    assert wait_until(
        lambda: command.poll() is not None or dagster_answers(port), 240, interval_seconds=0.2
    )
    record = StackFolder(settings).server("dagster").record()
    assert record is not None, command.communicate()
    family = [process := psutil.Process(record.process.pid), *process.children(recursive=True)]
    command.send_signal(signal.SIGINT)
    command.communicate()
    assert command.returncode == 0
    assert processes_of(settings) == []
    assert list(filter(lives, family)) == []


def test_an_occupied_port_is_named_before_anything_starts(new_stack: NewStack) -> None:
    settings = new_stack()
    with socket.create_server((LOOPBACK, 0)) as rival:
        port = rival.getsockname()[1]
        with pytest.raises(InfraUnavailableError, match=f"Port {port} for Dagster") as caught:
            develop(settings, services=("postgres",), port=port, report=lambda _: None)
    assert "--port" in str(caught.value)
    assert processes_of(settings) == []


def test_dagster_needs_a_database_of_its_own(new_stack: NewStack) -> None:
    url = "postgresql+psycopg://somebody@db.example/onex"
    settings = new_stack().model_copy(
        update={"postgres": PostgresSettings.model_validate({"url": url})}
    )
    with pytest.raises(ConfigurationError, match="no database for Dagster"):
        develop(settings, services=("kafka",), port=free_port(), report=lambda _: None)
    assert processes_of(settings) == []
