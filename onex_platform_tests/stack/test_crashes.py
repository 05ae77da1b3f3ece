"""Whatever is killed, and whenever: no process is left over, and the stack comes back by itself."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import uuid4

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from onex_platform import stack
from onex_platform.base.settings import Settings
from onex_platform.stack import processes
from onex_platform.stack.folders import StackFolder
from onex_platform.stack.processes import wait_until
from onex_platform_tests.support.own_stacks import NewStack, onex, python, stranger
from onex_platform_tests.support.stacks import connect, processes_of

pytestmark = pytest.mark.servers

PATIENCE_SECONDS = 60


def eventually(condition: Callable[[], bool]) -> bool:
    return wait_until(condition, PATIENCE_SECONDS, interval_seconds=0.05)


def read_until(command: subprocess.Popen[str], words: str) -> list[str]:
    """What the command says on stderr, up to the line with `words` or to its end."""
    heard: list[str] = []
    assert command.stderr is not None
    for line in command.stderr:
        heard.append(line)
        if words in line:
            break
    return heard


def leader(settings: Settings, server: str) -> psutil.Process:
    record = StackFolder(settings).server(server).record()
    assert record is not None
    return psutil.Process(record.process.pid)


def test_killed_servers_come_back_with_their_data(new_stack: NewStack) -> None:
    settings = new_stack()
    attached = stack.up(settings)
    topic = f"kept-{uuid4()}"
    with connect(attached) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    admin = AdminClient(attached.kafka.client_config())
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    producer = Producer(attached.kafka.client_config())
    producer.produce(topic, b"kept")
    assert producer.flush(30) == 0
    del admin, producer

    for server in ("postgres", "kafka"):
        leader(settings, server).kill()
    attached = stack.up(settings)

    with connect(attached) as connection:
        assert connection.execute("SELECT answer FROM kept").fetchall() == [(42,)]
    consumer = Consumer({**attached.kafka.client_config(), "group.id": topic})
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(30)
    assert message is not None
    assert message.value() == b"kept"
    consumer.close()


def test_a_lost_state_file_does_not_hide_running_servers(new_stack: NewStack) -> None:
    settings = new_stack()
    stack.up(settings, services=("postgres",))
    before = leader(settings, "postgres")
    (settings.stack.folder / "state.json").write_text("not JSON")
    stack.up(settings, services=("postgres",))
    assert not processes.lives(before)
    (settings.stack.folder / "state.json").unlink()
    stack.down(settings)
    assert processes_of(settings) == []


def test_a_lock_file_with_a_recycled_process_id_does_not_stop_postgres(
    new_stack: NewStack,
) -> None:
    settings = new_stack()
    stack.up(settings, services=("postgres",))
    lock = settings.stack.folder / "postgres" / "data" / "postmaster.pid"
    lines = lock.read_text().splitlines()
    leader(settings, "postgres").kill()
    assert eventually(lambda: processes_of(settings) == [])
    # PostgreSQL takes the lock file of its own user's living process for that of a server.
    owner = lock.stat().st_uid if os.geteuid() == 0 else None
    with stranger(user=owner) as process:
        lock.write_text("\n".join([str(process.pid), *lines[1:]]) + "\n")
        stack.up(settings, services=("postgres",))
        assert process.poll() is None


def test_a_data_folder_left_half_made_is_made_anew(new_stack: NewStack) -> None:
    settings = new_stack()
    half = settings.stack.folder / "postgres" / "data.new"
    half.mkdir(parents=True)
    (half / "PG_VERSION").write_text("18\n")
    with connect(stack.up(settings, services=("postgres",))) as connection:
        connection.execute("SELECT 1")
    assert not half.exists()


def kafka_is_starting(settings: Settings) -> bool:
    return processes.marked(StackFolder(settings).server("kafka").marker) != []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_start_leaves_no_process(
    new_stack: NewStack, number: signal.Signals
) -> None:
    settings = new_stack()
    command = onex(settings, "stack", "up")
    assert eventually(lambda: kafka_is_starting(settings))
    command.send_signal(number)
    command.communicate()
    assert command.returncode != 0
    if number is signal.SIGKILL:
        assert eventually(lambda: processes_of(settings) == [])
    assert processes_of(settings) == []


@contextmanager
def starter_of_postgres(settings: Settings) -> Iterator[psutil.Process]:
    """A process that has started PostgreSQL for itself."""
    program = (
        "import sys\n"
        "with stack.running(settings, services=['postgres']):\n"
        "    print('running', flush=True)\n"
        "    sys.stdin.read()\n"  # until it is killed, or the test is gone
    )
    with python(settings, program) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        yield psutil.Process(process.pid)
        process.kill()


def test_servers_end_with_the_process_that_started_them_for_itself(new_stack: NewStack) -> None:
    settings = new_stack()
    with starter_of_postgres(settings) as starter:
        assert processes_of(settings) != []
        starter.kill()
    assert eventually(lambda: processes_of(settings) == [])


def test_nobody_adopts_a_server_that_a_guardian_is_about_to_stop(new_stack: NewStack) -> None:
    settings = new_stack()
    with starter_of_postgres(settings) as starter:
        [guardian] = [
            child for child in starter.children() if "guardian" in " ".join(child.cmdline())
        ]
        guardian.suspend()
        starter.kill()
    with stack.running(settings, services=("postgres",)) as attached:
        guardian.resume()
        assert eventually(lambda: not processes.lives(guardian))
        with connect(attached) as connection:
            connection.execute("SELECT 1")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stack_in_the_foreground_ends_with_its_command(
    new_stack: NewStack, number: signal.Signals
) -> None:
    settings = new_stack()
    command = onex(settings, "stack", "up", "--foreground")
    heard = read_until(command, "Ctrl-C stops")
    assert "Ctrl-C stops" in heard[-1], heard
    command.send_signal(number)
    command.communicate()
    assert command.returncode == 0
    assert processes_of(settings) == []
