"""The shared fixtures and helpers give what they promise."""

from __future__ import annotations

import signal

import pytest
from confluent_kafka.admin import AdminClient

from onex_platform.base.settings import Settings
from onex_platform_tests.support.forked_programs import run_program, start_program
from onex_platform_tests.support.stacks import connect

_SAYS_WHAT_IT_HAS_AND_DIES = """
import os, signal, sys
print(os.environ["GIVEN"], sys.argv[1:], "onex_platform.pipeline" in sys.modules, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.servers
@pytest.mark.parametrize("_round", [1, 2])
def test_each_test_has_an_empty_database(database_settings: Settings, _round: int) -> None:
    assert database_settings.postgres.url is not None
    assert database_settings.postgres.url.get_secret_value().startswith("postgresql+psycopg://")
    with connect(database_settings) as connection:
        connection.execute("CREATE TABLE only_here ()")


@pytest.mark.servers
def test_the_broker_answers(kafka_settings: Settings) -> None:
    assert AdminClient(kafka_settings.kafka.client_config()).list_topics(timeout=10).brokers


def test_a_forked_program_has_what_it_was_given_and_ends_by_its_signal() -> None:
    program = start_program(_SAYS_WHAT_IT_HAS_AND_DIES, "word", variables={"GIVEN": "value"})
    assert program.output.read() == "value ['word'] True\n"
    assert program.wait() == -signal.SIGKILL


@pytest.mark.parametrize(("program", "code"), [("", 0), ("raise SystemExit(3)", 3), ("1 / 0", 1)])
def test_a_forked_program_ends_as_python_would(program: str, code: int) -> None:
    assert run_program(program) == code
