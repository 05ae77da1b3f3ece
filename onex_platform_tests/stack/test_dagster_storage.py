"""Plain Dagster commands in a checkout: they have the embedded servers for as long as they last."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote
from urllib.request import urlopen

import psycopg
import pytest

from onex_platform import stack
from onex_platform.base.paths import project_file
from onex_platform.base.settings import Settings
from onex_platform.stack import client_programs
from onex_platform.stack.ports import LOOPBACK, free_port
from onex_platform.stack.processes import wait_until
from onex_platform_tests.support.own_stacks import NewStack, dagster_answers
from onex_platform_tests.support.stacks import processes_of

# What Dagster reads of a checkout.
_FILES = ("dagster.yaml", "workspace.yaml", "pyproject.toml")
_GRAPH = ("-m", "onex_platform.definitions")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    folder.mkdir()
    for name in _FILES:
        shutil.copy(project_file(name), folder)
    return folder


@pytest.fixture
def settings(new_stack: NewStack) -> Settings:
    """The stack of the checkout, in its default folder."""
    return new_stack("checkout/.onex")


def dagster(checkout: Path, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    """A `dagster` command there, with no settings but `variables`."""
    theirs = {
        name: value
        for name, value in os.environ.items()
        if name == "ONEX_STACK_CACHE" or not name.startswith(("ONEX_", "DAGSTER"))
    }
    return subprocess.Popen(
        [str(Path(sys.executable).with_name("dagster")), *arguments],
        cwd=checkout,
        env={**theirs, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(checkout: Path, *arguments: str, **variables: str) -> tuple[int, str, str]:
    """Run such a command to its end: exit code, output, complaints."""
    command = dagster(checkout, *arguments, **variables)
    said, complained = command.communicate()
    return command.returncode, said, complained


def successes(attached: Settings) -> set[str]:
    """The jobs of which Dagster's database has a successful run."""
    url = attached.postgres.dagster_url
    assert url is not None
    query = "SELECT pipeline_name FROM runs WHERE status = 'SUCCESS'"
    with psycopg.connect(url.get_secret_value().replace("+psycopg2", "")) as connection:
        return {job for (job,) in connection.execute(query)}


@pytest.mark.servers
def test_a_command_starts_the_servers_and_takes_them_down(
    checkout: Path, settings: Settings
) -> None:
    code, said, complained = run(checkout, "definitions", "validate")
    assert code == 0, complained
    assert "Validation successful" in said + complained
    assert "Starting PostgreSQL" in complained
    assert "Starting PostgreSQL" not in said
    assert processes_of(settings) == []
    assert {entry.name for entry in checkout.iterdir()} == {*_FILES, ".onex"}


@pytest.mark.servers
def test_commands_use_servers_that_run_and_leave_them_running(
    checkout: Path, settings: Settings
) -> None:
    with stack.running(settings) as attached:
        before = processes_of(settings)
        select = ("--select", "registration_projections")
        for arguments in (
            ("asset", "materialize", *_GRAPH, *select),
            ("job", "execute", *_GRAPH, "-j", "prune_ledger"),
        ):
            code, said, complained = run(checkout, *arguments)
            assert code == 0, said + complained
        assert successes(attached) == {"__ASSET_JOB", "prune_ledger"}
        assert {process.pid for process in before} <= {p.pid for p in processes_of(settings)}
        assert client_programs.find(client_programs.marker(settings.stack.folder)) == []
    assert {entry.name for entry in checkout.iterdir()} == {*_FILES, ".onex"}


@pytest.mark.servers
def test_dagster_dev_serves_the_graph_and_takes_everything_down(
    checkout: Path, settings: Settings
) -> None:
    port = free_port()
    command = dagster(checkout, "dev", "--port", str(port))
    assert wait_until(
        lambda: command.poll() is not None or dagster_answers(port), 240, interval_seconds=0.2
    )
    assert command.poll() is None, command.communicate()
    assert ["registration_projections"] in assets(port)
    command.terminate()
    _, complained = command.communicate(timeout=120)
    assert command.returncode == 0, complained
    assert processes_of(settings) == []
    assert {entry.name for entry in checkout.iterdir()} == {*_FILES, ".onex"}


def assets(port: int) -> list[list[str]]:
    """The keys of the graph, as the web interface gets them."""
    query = quote("{ assetNodes { assetKey { path } } }")
    with urlopen(f"http://{LOOPBACK}:{port}/graphql?query={query}", timeout=60) as answer:
        nodes = json.load(answer)["data"]["assetNodes"]
    return [node["assetKey"]["path"] for node in nodes]


def test_a_server_of_ones_own_without_dagsters_database_is_one_clear_error(
    checkout: Path, settings: Settings
) -> None:
    code, _, complained = run(
        checkout,
        *("definitions", "validate"),
        ONEX_POSTGRES_URL="postgresql+psycopg://somebody@db.example/onex",
    )
    assert code == 1
    assert "Error: ONEX_POSTGRES_URL is set, but no database for Dagster" in complained
    assert "Traceback" not in complained
    assert processes_of(settings) == []


def test_a_process_below_the_one_that_had_the_servers_does_not_start_them(
    checkout: Path, settings: Settings
) -> None:
    word = client_programs.marker(settings.stack.folder)
    code, _, complained = run(
        checkout, "definitions", "validate", **{client_programs.VARIABLE: word}
    )
    assert code == 1
    assert "The embedded PostgreSQL of" in complained
    assert "is not running" in complained
    assert processes_of(settings) == []
