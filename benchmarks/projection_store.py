"""What the projection store costs beside the bare work, and what a heartbeat costs in it.

    python -m benchmarks.projection_store --rows 100000 --table-rows 100000 --table-rows 1000000

On one table size after the other, in one run and in turns, each on tables of its own with the same
rows, columns and indexes:

- bare: COPY into a staging table and one upsert of the same bytes; no guard, outbox, cursor, counts
- store: `ProjectorRegistration.persist_batch` of the same changes
- executemany: the same upsert by SQLAlchemy
- heartbeats: `persist_batch` of as many heartbeats
- heartbeats in one table: COPY and upsert of the same heartbeats into a table with all the indexes,
  which is what the registration schema would be without the narrow table beside it

All start from the same list of changes. Every table is vacuumed before its turn. The first round
warms up and does not count; the embedded server takes no checkpoint meanwhile. Medians of wall
seconds, and of the seconds that client and server computed, which a busy machine distorts less. The
ratios are what to compare between machines.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import click
import psutil
from pydantic import SecretStr
from sqlalchemy import MetaData, Table, make_url
from sqlalchemy.dialects.postgresql import insert

from onex_platform import stack
from onex_platform.base.settings import Settings, load_settings
from onex_platform.domain.batch import RowChange
from onex_platform.domain.identity import REGISTRATION_DOMAIN
from onex_platform.domain.payloads import ModelNodeCapabilities
from onex_platform.domain.projection import ModelRegistrationProjection
from onex_platform.domain.states import EnumNodeType, EnumOutcome, EnumRegistrationState
from onex_platform.engines.postgres.database import (
    Database,
    copy_rows,
    open_database,
    open_engine,
)
from onex_platform.engines.postgres.migrations import migrate
from onex_platform.projections.write.projector import ProjectionBatch, ProjectorRegistration
from onex_platform.projections.write.staged_batch import Given
from onex_platform.projections.write.upsert import (
    LIVENESS_COLUMNS,
    WIDE_COLUMNS,
)

wide_values = attrgetter(*WIDE_COLUMNS)
liveness_values = attrgetter(*LIVENESS_COLUMNS)
START = datetime(2026, 1, 1, tzinfo=UTC)
BARE, MANY, ONE_TABLE = "bare_rows", "executemany_rows", "one_table_rows"
KEY = ("entity_id", "domain")
CHUNK = 100_000


class Seconds(NamedTuple):
    wall: float
    cpu: float


@dataclass
class Bench:
    """The database, the projector, and how far the log is folded."""

    database: Database
    projector: ProjectorRegistration
    position: int = 0

    def cpu_seconds(self) -> float:
        """What this process and its server session, if that is on this machine, have computed."""
        with self.database.engine.connect() as connection:
            backend = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        try:
            session = psutil.Process(backend)
            times = session.cpu_times() if session.name() == "postgres" else None
        except psutil.NoSuchProcess:
            times = None
        return time.process_time() + (times.user + times.system if times else 0)

    def administer(self, *statements: str) -> None:
        with self.database.engine.connect().execution_options(
            isolation_level="AUTOCOMMIT"
        ) as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)

    def next_position(self) -> int:
        """The place of the next batch; its rows all stand there."""
        return self.position

    def write(self, changes: list[RowChange]) -> None:
        start, self.position = self.position, self.position + 1
        result = self.projector.persist_batch(
            ProjectionBatch(
                domain=REGISTRATION_DOMAIN,
                start=start,
                end=self.position,
                read=len(changes),
                outcomes=Counter({EnumOutcome.APPLIED: len(changes)}),
                content=Given(changes),
            )
        )
        assert result.committed
        assert result.written.stale == 0


def projection(number: int, position: int, salt: float) -> ModelRegistrationProjection:
    """A node as fleets have them: a handful of capabilities, endpoints and labels."""
    beat = START + timedelta(seconds=position * 30 + salt)
    return ModelRegistrationProjection(
        entity_id=UUID(int=(number * 0x9E3779B97F4A7C15) % 2**64 << 64 | number),
        tenant=f"tenant-{number % 20}",
        current_state=EnumRegistrationState.ACTIVE,
        epoch=1,
        node_type=list(EnumNodeType)[number % 4],
        node_name=f"node-{number}",
        node_version=f"1.{position}.0",
        capabilities=ModelNodeCapabilities(
            supported_operations=(f"op-{number % 50}", f"op-{number % 7}"),
            protocols=("grpc", "http"),
            max_concurrent_requests=int(salt * 100),
            **{f"flag_{number % 20}": True},
        ),
        endpoints={"health": f"http://10.0.0.{number % 255}:8080/health", "api": "http://10.0.0.1"},
        metadata={"region": f"eu-{number % 3}", "build": f"{number:032x}"},
        introspected_at=beat,
        registered_at=START,
        last_state_change_at=START,
        last_heartbeat_at=beat,
        liveness_deadline=beat + timedelta(seconds=90),
        last_applied_event_id=UUID(int=random.getrandbits(128)),
        last_applied_sequence=position,
        last_applied_topic="input",
        last_applied_partition=number % 3,
        last_applied_offset=number,
        correlation_id=UUID(int=random.getrandbits(128)),
    )


def upsert(table: str, columns: tuple[str, ...], staged: str) -> str:
    names = ", ".join(columns)
    replaced = ", ".join(f"{name} = excluded.{name}" for name in columns if name not in KEY)
    return (
        f"INSERT INTO {table} ({names}) SELECT {names} FROM {staged}"  # noqa: S608
        f" ON CONFLICT (entity_id, domain) DO UPDATE SET {replaced}"
    )


def bare(bench: Bench, changes: list[RowChange]) -> None:
    with bench.database.transaction() as cursor:
        cursor.execute(f"CREATE TEMPORARY TABLE staged (LIKE {BARE}) ON COMMIT DROP")
        cursor.execute("ALTER TABLE staged ALTER row_version SET DEFAULT 1")
        copy_rows(cursor, "staged", WIDE_COLUMNS, (wide_values(change.row) for change in changes))
        cursor.execute(upsert(BARE, (*WIDE_COLUMNS, "row_version"), "staged"))


def heartbeats_in_one_table(bench: Bench, changes: list[RowChange]) -> None:
    columns = ", ".join(LIVENESS_COLUMNS)
    changed = ", ".join(f"{name} = s.{name}" for name in LIVENESS_COLUMNS if name not in KEY)
    with bench.database.transaction() as cursor:
        cursor.execute(
            f"CREATE TEMPORARY TABLE staged ON COMMIT DROP AS SELECT {columns}"  # noqa: S608
            " FROM registration_liveness WITH NO DATA"
        )
        values = (liveness_values(change.row) for change in changes)
        copy_rows(cursor, "staged", LIVENESS_COLUMNS, values)
        cursor.execute(
            f"UPDATE {ONE_TABLE} AS t SET {changed} FROM staged AS s"  # noqa: S608
            " WHERE t.entity_id = s.entity_id AND t.domain = s.domain"
        )


def prepare_executemany(bench: Bench) -> Callable[[list[RowChange]], None]:
    table = Table(MANY, MetaData(), autoload_with=bench.database.engine)
    statement = insert(table)
    statement = statement.on_conflict_do_update(
        index_elements=KEY,
        set_={name: statement.excluded[name] for name in WIDE_COLUMNS if name not in KEY},
    )

    def run(changes: list[RowChange]) -> None:
        with bench.database.engine.begin() as connection:
            connection.execute(statement, as_parameters(changes))

    return run


def as_parameters(changes: list[RowChange]) -> list[dict[str, Any]]:
    return [
        {
            **dict(zip(WIDE_COLUMNS, wide_values(change.row), strict=True)),
            "capabilities": change.row.capabilities.model_dump(mode="json"),
            "row_version": 1,
        }
        for change in changes
    ]


def fill_projections(bench: Bench, rows: int) -> None:
    """So many rows in the registry."""
    for first in range(0, rows, CHUNK):
        place = bench.next_position()
        numbers = range(first, min(first + CHUNK, rows))
        bench.write(
            [
                RowChange(row=projection(number, place, 0.5), wide=True, liveness=True)
                for number in numbers
            ]
        )


def fill(bench: Bench, rows: int) -> None:
    """The same rows in every table, vacuumed."""
    fill_projections(bench, rows)
    for table in (BARE, MANY):
        bench.administer(
            f"CREATE TABLE {table} (LIKE registration_projections INCLUDING ALL)",
            f"INSERT INTO {table} SELECT * FROM registration_projections",  # noqa: S608
        )
    bench.administer(
        f"CREATE TABLE {ONE_TABLE} (LIKE registration_projections INCLUDING ALL)",
        f"ALTER TABLE {ONE_TABLE} ADD last_heartbeat_at timestamptz,"
        " ADD liveness_deadline timestamptz",
        f"CREATE INDEX ON {ONE_TABLE} (liveness_deadline) WHERE liveness_deadline IS NOT NULL",
        f"CREATE INDEX ON {ONE_TABLE} (domain, liveness_deadline, entity_id)"
        " WHERE liveness_deadline IS NOT NULL",
        f"INSERT INTO {ONE_TABLE} SELECT p.*, l.last_heartbeat_at, l.liveness_deadline"  # noqa: S608
        " FROM registration_projections AS p JOIN registration_liveness AS l"
        " USING (entity_id, domain)",
        "TRUNCATE outbox",
        "VACUUM ANALYZE",
    )


def measure(bench: Bench, rows: int, table_rows: int, rounds: int) -> dict[str, Seconds]:
    """Median seconds of each contestant, taken in turns."""
    run_executemany = prepare_executemany(bench)
    taken: dict[str, list[Seconds]] = {}

    def turn(name: str, table: str, work: Callable[[], object]) -> None:
        bench.administer(f"VACUUM {table}")
        computed, started = bench.cpu_seconds(), time.perf_counter()
        work()
        wall = time.perf_counter() - started
        taken.setdefault(name, []).append(Seconds(wall, bench.cpu_seconds() - computed))

    for _ in range(1 + rounds):
        changes = [
            RowChange(
                row=projection(number, bench.next_position(), random.random()),
                wide=True,
                liveness=False,
            )
            for number in random.sample(range(table_rows), rows)
        ]
        turn("bare", BARE, partial(bare, bench, changes))
        turn("store", "registration_projections", partial(bench.write, changes))
        turn("executemany", MANY, partial(run_executemany, changes))
        beats = [
            replace(
                change,
                row=change.row.model_copy(update={"last_applied_sequence": bench.next_position()}),
                wide=False,
                liveness=True,
            )
            for change in changes
        ]
        turn("heartbeats", "registration_liveness", partial(bench.write, beats))
        turn("in one table", ONE_TABLE, partial(heartbeats_in_one_table, bench, beats))
    return {
        name: Seconds(*map(statistics.median, zip(*counted[1:], strict=True)))
        for name, counted in taken.items()
    }


def report(rows: int, table_rows: int, medians: dict[str, Seconds]) -> None:
    print(f"\n{rows} changes on a table of {table_rows} rows")
    for name, seconds in medians.items():
        rate = rows / seconds.wall
        print(
            f"  {name:<14} {seconds.wall:7.2f} s {rate:9,.0f} rows/s {seconds.cpu:7.2f} s computed"
        )

    def ratio(slower: str, faster: str) -> str:
        wall, cpu = (a / b for a, b in zip(medians[slower], medians[faster], strict=True))
        return f"{wall:.2f} (computed: {cpu:.2f})"

    print(f"  the store's rate by the bare one: {ratio('bare', 'store')}")
    print(f"  the store's rate by executemany's: {ratio('executemany', 'store')}")
    print(f"  heartbeats' rate by full rows': {ratio('store', 'heartbeats')}")
    print(
        f"  heartbeats' rate by theirs in one table: {ratio('in one table', 'heartbeats')}",
        flush=True,
    )


@contextmanager
def scratch_database() -> Iterator[Settings]:
    """A database of the benchmark's own, on the embedded server or the one that is set."""
    settings = load_settings()
    with tempfile.TemporaryDirectory() as folder:
        own = settings.stack.model_copy(update={"folder": Path(folder)})
        settings = settings.model_copy(update={"stack": own})
        with stack.running(settings, services=["postgres"]) as attached:
            assert attached.postgres.url is not None
            server = open_engine(attached)
            name = f"benchmark_{random.getrandbits(32):08x}"
            with server.connect().execution_options(isolation_level="AUTOCOMMIT") as admin:
                if settings.postgres.url is None:
                    admin.exec_driver_sql("ALTER SYSTEM SET checkpoint_timeout = '1h'")
                    admin.exec_driver_sql("ALTER SYSTEM SET max_wal_size = '32GB'")
                    admin.exec_driver_sql("SELECT pg_reload_conf()")
                admin.exec_driver_sql(f"CREATE DATABASE {name}")
                url = make_url(attached.postgres.url.get_secret_value()).set(database=name)
                postgres = attached.postgres.model_copy(
                    update={
                        "url": SecretStr(url.render_as_string(hide_password=False)),
                        "statement_timeout_seconds": 3600,
                    }
                )
                yield attached.model_copy(update={"postgres": postgres})
                admin.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")
            server.dispose()


@click.command()
@click.option("--rows", default=100_000, show_default=True, help="changed rows per batch")
@click.option("--table-rows", multiple=True, type=int, default=(100_000, 1_000_000))
@click.option("--rounds", default=5, show_default=True)
def main(rows: int, table_rows: tuple[int, ...], rounds: int) -> None:
    for size in table_rows:
        with scratch_database() as settings:
            migrate(settings)
            with open_database(settings) as database:
                bench = Bench(database, ProjectorRegistration(database, settings))
                fill(bench, size)
                report(rows, size, measure(bench, rows, size, rounds))


if __name__ == "__main__":
    main()
