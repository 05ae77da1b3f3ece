"""The migrations' promises: order, once, one at a time, all or nothing, no silent change."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

from onex_platform.base.errors import ConfigurationError, InfraError, InfraTimeoutError
from onex_platform.base.settings import Settings
from onex_platform.engines.postgres.migrations import MigrationState, migrate, migration_status
from onex_platform_tests.support.waiting import eventually

pytestmark = pytest.mark.servers

FIRST = "CREATE TABLE first (x int);"
SECOND = "CREATE TABLE second (x int);"

# Prints what was applied, as another process of the platform would apply it.
MIGRATE_IN_A_PROCESS = """
import json, sys
from pathlib import Path
from onex_platform.engines.postgres.migrations import migrate
from onex_platform.base.settings import load_settings
print(json.dumps(migrate(load_settings(), Path(sys.argv[1]))))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "0001.first.sql").write_text(FIRST)
    (tmp_path / "0002.second.sql").write_text(SECOND)
    return tmp_path


@pytest.fixture
def database(database_url: str) -> Iterator[psycopg.Connection]:
    url = make_url(database_url).set(drivername="postgresql")
    with psycopg.connect(url.render_as_string(False), autocommit=True) as connection:
        yield connection


@pytest.fixture
def start_process(
    database_url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    monkeypatch.setenv("ONEX_POSTGRES_URL", database_url)
    started: list[subprocess.Popen[str]] = []

    def start() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", MIGRATE_IN_A_PROCESS, str(folder)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def states(settings: Settings, folder: Path) -> dict[str, str]:
    return {status.name: status.state.value for status in migration_status(settings, folder)}


def tables(database: psycopg.Connection) -> set[str]:
    query = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
    return {name for (name,) in database.execute(query)}


def test_migrations_are_applied_in_order_and_once(
    database_settings: Settings, folder: Path
) -> None:
    assert migrate(database_settings, folder) == ["0001.first", "0002.second"]
    assert migrate(database_settings, folder) == []
    assert states(database_settings, folder) == {"0001.first": "applied", "0002.second": "applied"}
    assert all(status.applied_at for status in migration_status(database_settings, folder))


def test_status_of_a_fresh_database_changes_nothing(
    database_settings: Settings, folder: Path, database: psycopg.Connection
) -> None:
    assert set(states(database_settings, folder).values()) == {"pending"}
    assert tables(database) == set()


def test_function_bodies_percent_signs_and_quoted_semicolons_survive_the_splitting(
    database_settings: Settings, tmp_path: Path, database: psycopg.Connection
) -> None:
    (tmp_path / "0001.functions.sql").write_text("""
        -- A comment; with a semicolon.
        CREATE FUNCTION answer(text) RETURNS text LANGUAGE plpgsql AS $$
        BEGIN
            IF $1 LIKE '%;%' THEN RETURN 'it''s; here'; END IF;
            RETURN CASE WHEN $1 IS NULL THEN 'null' ELSE 'not here' END;
        END;
        $$;
        CREATE FUNCTION outer_answer(text) RETURNS text LANGUAGE sql
            AS $body$ SELECT 1; SELECT answer($1); $body$;
        DO $$ BEGIN PERFORM answer(';'); END $$;
    """)
    migrate(database_settings, tmp_path)
    row = database.execute("SELECT outer_answer('a;b'), outer_answer('ab')").fetchone()
    assert row == ("it's; here", "not here")


def test_processes_that_start_together_take_turns(
    database_settings: Settings,
    folder: Path,
    database: psycopg.Connection,
    start_process: Callable[[], subprocess.Popen[str]],
) -> None:
    waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    with database.transaction(force_rollback=True):
        # Whoever comes first stops inside its migration, so that the others pile up behind it.
        database.execute("CREATE TABLE first (x int)")
        processes = [start_process() for _ in range(3)]
        assert eventually(lambda: database.execute(waiting).fetchone() == (2,))
    results = [json.loads(process.communicate(timeout=60)[0]) for process in processes]
    assert sorted(results, key=len) == [[], [], ["0001.first", "0002.second"]]
    assert all(process.returncode == 0 for process in processes)


def test_a_process_killed_inside_a_migration_leaves_the_rest_to_the_next(
    database_settings: Settings,
    folder: Path,
    database: psycopg.Connection,
    start_process: Callable[[], subprocess.Popen[str]],
) -> None:
    sleeper = folder / "0003.sleeper.sql"
    sleeper.write_text("CREATE TABLE third (x int);\nSELECT pg_sleep(60);")
    running = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep(60)%'"
    process = start_process()
    assert eventually(lambda: database.execute(running).fetchone() == (1,))
    process.kill()
    sleeper.write_text("CREATE TABLE third (x int);")
    assert migrate(database_settings, folder) == ["0003.sleeper"]
    assert {"first", "second", "third"} <= tables(database)


def test_a_lock_row_that_a_dead_process_left_does_not_stop_anybody(
    database_settings: Settings, folder: Path, database: psycopg.Connection
) -> None:
    database.execute("CREATE TABLE yoyo_lock (locked int PRIMARY KEY, ctime timestamp, pid int)")
    database.execute("INSERT INTO yoyo_lock VALUES (1, now(), 1)")
    assert migrate(database_settings, folder) == ["0001.first", "0002.second"]


def test_waiting_for_another_migration_ends(
    database_settings: Settings, folder: Path, database: psycopg.Connection
) -> None:
    postgres = database_settings.postgres.model_copy(update={"lock_timeout_seconds": 0.1})
    settings = database_settings.model_copy(update={"postgres": postgres})
    key = int.from_bytes(b"onex-sql", "big")
    database.execute("SELECT pg_advisory_lock(%s)", [key])
    with pytest.raises(InfraTimeoutError, match="ONEX_POSTGRES_LOCK_TIMEOUT_SECONDS"):
        migrate(settings, folder)


def test_a_failed_migration_is_named_with_its_statement_and_leaves_the_earlier_ones(
    database_settings: Settings, folder: Path, database: psycopg.Connection
) -> None:
    bad = folder / "0003.bad.sql"
    bad.write_text("CREATE TABLE third (x int);\nINSERT INTO third VALUES ('nine');")
    with pytest.raises(InfraError, match=r"0003\.bad\.sql .*INSERT INTO third VALUES"):
        migrate(database_settings, folder)
    assert tables(database) >= {"first", "second"}
    assert "third" not in tables(database)
    assert states(database_settings, folder)["0003.bad"] == "pending"

    bad.write_text("CREATE TABLE third (x int);")
    assert migrate(database_settings, folder) == ["0003.bad"]


def test_a_file_changed_after_it_was_applied_is_refused_by_name(
    database_settings: Settings, folder: Path
) -> None:
    migrate(database_settings, folder)
    (folder / "0001.first.sql").write_text("CREATE TABLE first (x bigint);")
    (folder / "0003.third.sql").write_text("CREATE TABLE third (x int);")
    with pytest.raises(ConfigurationError, match=r"0001\.first: .*new migration"):
        migrate(database_settings, folder)
    assert states(database_settings, folder) == {
        "0001.first": "changed",
        "0002.second": "applied",
        "0003.third": "pending",
    }


def test_other_line_ends_are_not_a_change(database_settings: Settings, folder: Path) -> None:
    file = folder / "0003.lines.sql"
    file.write_bytes(b"CREATE TABLE third (\n  x int\n);\n")
    migrate(database_settings, folder)
    file.write_bytes(b"CREATE TABLE third (\r\n  x int\r\n);\r\n")
    assert migrate(database_settings, folder) == []


def test_a_database_newer_than_the_code_is_refused_and_reported(
    database_settings: Settings, folder: Path
) -> None:
    migrate(database_settings, folder)
    (folder / "0002.second.sql").unlink()
    with pytest.raises(ConfigurationError, match=r"0002\.second: .*Upgrade onex-platform"):
        migrate(database_settings, folder)
    assert states(database_settings, folder)["0002.second"] == MigrationState.UNKNOWN


def test_a_number_given_late_is_refused(database_settings: Settings, folder: Path) -> None:
    second = folder / "0002.second.sql"
    second.rename(folder / "0003.second.sql")
    migrate(database_settings, folder)
    second.write_text(SECOND)
    with pytest.raises(ConfigurationError, match=r"0002\.second: .*next free number"):
        migrate(database_settings, folder)
    assert states(database_settings, folder)["0002.second"] == MigrationState.LATE


@pytest.mark.parametrize("name", ["0002.twin.sql", "3.short.sql", "0003.Upper.sql", "0003.code.py"])
def test_a_file_that_breaks_the_numbering_is_refused_by_name(
    database_settings: Settings, folder: Path, name: str
) -> None:
    (folder / name).write_text("")
    with pytest.raises(ConfigurationError, match=name):
        migrate(database_settings, folder)


def test_a_migration_outside_a_transaction_is_refused(
    database_settings: Settings, folder: Path
) -> None:
    (folder / "0003.index.sql").write_text("-- transactional: false\nCREATE INDEX ON first (x);")
    with pytest.raises(ConfigurationError, match=r"0003\.index\.sql"):
        migrate(database_settings, folder)
