"""A stack comes up, stays itself, goes down, and never touches what is not its own."""

from __future__ import annotations

import socket
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import psycopg
import pytest
from pydantic import SecretStr
from sqlalchemy.engine import make_url

from onex_platform import stack
from onex_platform.base.errors import (
    ConfigurationError,
    InfraTimeoutError,
    InfraUnavailableError,
    PrerequisiteError,
)
from onex_platform.base.settings import (
    KafkaSettings,
    PostgresSettings,
    SchemasSettings,
    Settings,
    SparkSettings,
)
from onex_platform.stack.folders import ProcessIdentity, ServerRecord, StackFolder
from onex_platform.stack.lifecycle import SERVERS, supervise
from onex_platform.stack.ports import LOOPBACK, free_port
from onex_platform_tests.support.own_stacks import NewStack, onex, python, stranger
from onex_platform_tests.support.stacks import connect, listening_addresses, processes_of

pytestmark = [pytest.mark.servers, pytest.mark.long]

POSTGRES_ONLY = ("postgres",)


def state_of(settings: Settings, name: str) -> str:
    return {row.name: row.state for row in stack.status(settings)}[name]


def test_up_twice_keeps_the_same_processes(new_stack: NewStack) -> None:
    settings = new_stack()
    first = stack.up(settings, services=POSTGRES_ONLY)
    before = {process.pid for process in processes_of(settings)}
    sentences: list[str] = []
    assert stack.up(settings, services=POSTGRES_ONLY, report=sentences.append) == first
    assert {process.pid for process in processes_of(settings)} >= {min(before)}
    assert sentences == ["PostgreSQL runs already"]


def test_commands_at_the_same_time_start_one_server(new_stack: NewStack) -> None:
    settings = new_stack()
    program = "print(stack.up(settings, services=['postgres']).postgres.url.get_secret_value())"
    commands = [python(settings, program) for _ in range(3)]
    answers = {command.communicate()[0] for command in commands}
    assert len(answers) == 1
    assert [command.returncode for command in commands] == [0, 0, 0]


def test_stacks_in_two_folders_do_not_disturb_each_other(new_stack: NewStack) -> None:
    one, other = new_stack("one"), new_stack("other")
    with connect(stack.up(one, services=POSTGRES_ONLY)) as connection:
        connection.execute("CREATE TABLE mine ()")
    with connect(stack.up(other, services=POSTGRES_ONLY)) as connection:
        connection.execute("CREATE TABLE mine ()")
    stack.down(one)
    assert (state_of(one, "postgres"), state_of(other, "postgres")) == ("stopped", "running")


def test_down_leaves_no_process_and_keeps_the_data(new_stack: NewStack) -> None:
    settings = new_stack()
    with connect(stack.up(settings, services=POSTGRES_ONLY)) as connection:
        connection.execute("CREATE TABLE kept ()")
    stack.down(settings)
    assert processes_of(settings) == []
    with connect(stack.up(settings, services=POSTGRES_ONLY)) as connection:
        connection.execute("SELECT FROM kept")
    stack.down(settings, delete_data=True)
    assert not (settings.stack.folder / "postgres").exists()


def test_ports_stay_the_same_over_a_restart_unless_they_are_taken(new_stack: NewStack) -> None:
    settings = new_stack()
    first = stack.up(settings, services=POSTGRES_ONLY)
    stack.down(settings)
    assert stack.up(settings, services=POSTGRES_ONLY) == first
    stack.down(settings)
    assert first.postgres.url is not None
    with socket.create_server(
        (LOOPBACK, make_url(first.postgres.url.get_secret_value()).port or 0)
    ):
        assert stack.up(settings, services=POSTGRES_ONLY) != first


def test_there_are_two_databases_behind_a_password(new_stack: NewStack) -> None:
    settings = new_stack()
    attached = stack.up(settings, services=POSTGRES_ONLY)
    assert attached.postgres.dagster_url is not None
    dagster = make_url(attached.postgres.dagster_url.get_secret_value())
    assert (dagster.drivername, dagster.database) == ("postgresql+psycopg2", "dagster")
    with connect(attached) as connection:
        names = {row[0] for row in connection.execute("SELECT datname FROM pg_database")}
    assert {"onex", "dagster"} <= names
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(
            host=LOOPBACK, port=dagster.port, user=dagster.username, dbname="onex", password="guess"
        )
    password = settings.stack.folder / "postgres" / "password"
    assert stat.S_IMODE(password.stat().st_mode) == 0o600


def test_servers_listen_on_loopback_only(stack_settings: Settings) -> None:
    assert listening_addresses(stack_settings) == {LOOPBACK}


def test_a_server_with_an_address_in_the_settings_is_not_started(new_stack: NewStack) -> None:
    url = SecretStr("postgresql+psycopg://somebody@db.example/onex")
    settings = new_stack().model_copy(
        update={
            "postgres": PostgresSettings(url=url),
            "kafka": KafkaSettings(bootstrap_servers="kafka.example:9092"),
            "spark": SparkSettings(master="local[2]"),
            "schemas": SchemasSettings(url="https://schemas.example"),
        }
    )
    attached = stack.up(settings, services=tuple(SERVERS))
    assert attached == settings
    assert processes_of(settings) == []
    assert {row.state for row in stack.status(settings)} == {"external"}


def test_an_address_that_the_user_set_is_left_alone(new_stack: NewStack) -> None:
    own = SecretStr("postgresql+psycopg2://somebody@db.example/history")
    settings = new_stack().model_copy(update={"postgres": PostgresSettings(dagster_url=own)})
    attached = stack.up(settings, services=POSTGRES_ONLY)
    assert attached.postgres.dagster_url == own
    assert attached.postgres.url is not None


def test_attaching_to_a_stack_that_is_down_says_how_to_start_it(new_stack: NewStack) -> None:
    with pytest.raises(InfraUnavailableError, match=r"PostgreSQL of .* is not running") as caught:
        stack.attach(new_stack())
    assert "onex stack up" in str(caught.value)


def test_an_unknown_service_is_refused(new_stack: NewStack) -> None:
    with pytest.raises(ConfigurationError, match="'redis' is not a service"):
        stack.up(new_stack(), services=("redis",))


def test_an_occupied_fixed_port_is_named_and_nothing_is_started(new_stack: NewStack) -> None:
    with socket.create_server((LOOPBACK, 0)) as rival:
        port = rival.getsockname()[1]
        settings = new_stack(postgres_port=port)
        with pytest.raises(InfraUnavailableError, match=f"Port {port} for PostgreSQL") as caught:
            stack.up(settings, services=POSTGRES_ONLY)
    assert "ONEX_STACK_POSTGRES_PORT" in str(caught.value)
    assert processes_of(settings) == []


def test_a_free_fixed_port_is_used(new_stack: NewStack) -> None:
    port = free_port()
    attached = stack.up(new_stack(postgres_port=port), services=POSTGRES_ONLY)
    assert attached.postgres.url is not None
    assert make_url(attached.postgres.url.get_secret_value()).port == port


def test_a_disk_that_is_nearly_full_starts_nothing(new_stack: NewStack) -> None:
    settings = new_stack(min_free_mb=10**9)
    with pytest.raises(PrerequisiteError, match="1000000000 MB are needed"):
        stack.up(settings)
    assert processes_of(settings) == []


def test_a_missing_java_is_found_before_anything_is_started(
    new_stack: NewStack, tmp_path: Path
) -> None:
    settings, sentences = new_stack(java_home=tmp_path), list[str]()
    with pytest.raises(PrerequisiteError, match="No Java was found"):
        stack.up(settings, report=sentences.append)
    assert not [sentence for sentence in sentences if sentence.startswith("Starting")]
    assert processes_of(settings) == []


def test_a_server_that_fails_takes_along_only_what_was_started_with_it(
    new_stack: NewStack,
) -> None:
    stack.up(new_stack(), services=("kafka",))
    stack.down(new_stack())
    too_small = new_stack(kafka_heap="1m")
    with pytest.raises(InfraUnavailableError, match="Kafka ended while it was") as caught:
        stack.up(too_small)
    assert "heap" in str(caught.value)
    assert processes_of(too_small) == []

    stack.up(too_small, services=POSTGRES_ONLY)
    with pytest.raises(InfraUnavailableError):
        stack.up(too_small)
    assert state_of(too_small, "postgres") == "running"


def test_a_server_that_ends_while_starting_shows_its_log(new_stack: NewStack) -> None:
    settings = new_stack()
    stack.up(settings, services=POSTGRES_ONLY)
    stack.down(settings)
    (settings.stack.folder / "postgres" / "data" / "postgresql.conf").write_text("nonsense = 1\n")
    with pytest.raises(InfraUnavailableError, match="PostgreSQL ended while it was") as caught:
        stack.up(settings, services=POSTGRES_ONLY)
    assert "nonsense" in str(caught.value)
    assert processes_of(settings) == []


def test_a_server_that_never_answers_is_given_up(new_stack: NewStack) -> None:
    settings = new_stack(start_timeout_seconds=0.001)
    with pytest.raises(InfraTimeoutError, match=r"did not answer within 0\.001 s"):
        stack.up(settings, services=POSTGRES_ONLY)
    assert processes_of(settings) == []


def test_a_recycled_process_id_is_never_stopped(new_stack: NewStack) -> None:
    settings = new_stack()
    with stranger() as process:
        identity = ProcessIdentity(pid=process.pid, started=psutil.Process().create_time() - 3600)
        folder = StackFolder(settings)
        folder.path.mkdir()
        folder.remember("postgres", ServerRecord(process=identity, ports=(1,), starter=None))
        assert state_of(settings, "postgres") == "stopped"
        stack.down(settings)
        assert process.poll() is None


def test_a_server_that_hangs_is_reported(new_stack: NewStack) -> None:
    settings = new_stack()
    stack.up(settings, services=POSTGRES_ONLY)
    [server] = [row for row in stack.status(settings) if row.name == "postgres"]
    process = psutil.Process(server.pid)
    process.suspend()
    try:
        assert state_of(settings, "postgres") == "not answering"
    finally:
        process.resume()
    assert state_of(settings, "postgres") == "running"


def test_supervision_ends_with_the_server_and_shows_its_log(new_stack: NewStack) -> None:
    settings = new_stack()
    with stack.running(settings, services=POSTGRES_ONLY), ThreadPoolExecutor() as pool:
        watching = pool.submit(supervise, settings, services=POSTGRES_ONLY)
        stack.down(settings)
        error = watching.exception(timeout=10)
    assert isinstance(error, InfraUnavailableError)
    assert "database system is shut down" in str(error)


def test_what_ran_before_a_block_stays_after_it(new_stack: NewStack) -> None:
    settings = new_stack()
    stack.up(settings, services=POSTGRES_ONLY)
    with stack.running(settings, services=POSTGRES_ONLY):
        pass
    assert state_of(settings, "postgres") == "running"


def test_up_keeps_what_a_block_had_started(new_stack: NewStack) -> None:
    settings = new_stack()
    with stack.running(settings, services=POSTGRES_ONLY):
        stack.up(settings, services=POSTGRES_ONLY)
    assert state_of(settings, "postgres") == "running"


def test_a_block_stops_its_servers_when_it_fails(new_stack: NewStack) -> None:
    settings = new_stack()
    with pytest.raises(ZeroDivisionError), stack.running(settings, services=POSTGRES_ONLY):
        raise ZeroDivisionError
    assert processes_of(settings) == []


def test_postgres_runs_without_root(new_stack: NewStack) -> None:
    settings = new_stack()
    stack.up(settings, services=POSTGRES_ONLY)
    assert all(process.uids().real != 0 for process in processes_of(settings))
    data: Path = settings.stack.folder / "postgres" / "data"
    assert stat.S_IMODE(data.stat().st_mode) == 0o700


def test_the_command_tells_the_state_by_its_exit_code(new_stack: NewStack) -> None:
    settings = new_stack()
    status = onex(settings, "stack", "status")
    output, _ = status.communicate()
    assert (status.returncode, output.split()[:2]) == (1, ["postgres", "stopped"])
