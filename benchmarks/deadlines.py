"""What a scan costs, and that it does not depend on the nodes that are not overdue.

    python -m benchmarks.deadlines --rows 100000 --rows 1000000 --overdue 10000

For each size of the registry, in turns and in one run: the same number of overdue nodes is found
and declared. Each turn begins with the same rows and no facts. Printed are the plans by which the
overdue are found, the medians of wall seconds, and their ratio to the smallest registry's:

- find: walk the scan index to its end, page by page, and join each page with its rows
- scan: the whole of `scan`: evidence, watch, guard, facts in the inbox
- idle: `note_watch`, by which a loop finds that nothing has passed since
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import click

from benchmarks.projection_store import scratch_database
from onex_platform.base.settings import DeadlinesSettings, Settings
from onex_platform.deadlines.scan import note_watch, scan
from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.order import position_at
from onex_platform.engines.postgres.migrations import migrate
from onex_platform.ingest.archive import PageArchive, open_archive
from onex_platform.projections import overdue
from onex_platform.topics.catalogue import load_catalogue

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
KIND = EnumEventKind.LIVENESS_EXPIRED
ACK_WINDOW = timedelta(seconds=30)
LIMITS = DeadlinesSettings(scan_facts=10_000_000, scan_seconds=3600, grace_seconds=0)

NODES = """
    INSERT INTO registration_projections (entity_id, domain, tenant, current_state, epoch,
        node_type, capabilities, endpoints, metadata, introspected_at, registered_at,
        last_state_change_at, last_applied_event_id, last_applied_sequence, row_version)
    SELECT md5(n::text)::uuid, 'registration', 'omnibase', 'active', 1, 'effect',
        '{"supported_operations": ["read"]}', '{}', '{}', %(now)s, %(now)s, %(now)s,
        gen_random_uuid(), 1, 1
    FROM generate_series(1, %(rows)s) AS n"""
LIVENESS = """
    INSERT INTO registration_liveness
        (entity_id, domain, last_heartbeat_at, liveness_deadline, last_applied_sequence)
    SELECT md5(n::text)::uuid, 'registration', %(now)s,
        %(now)s + (CASE WHEN n <= %(overdue)s THEN -n ELSE n END) * interval '1 millisecond', 1
    FROM generate_series(1, %(rows)s) AS n"""


@dataclass
class Registry:
    """A registry of one size, with so many overdue nodes."""

    archive: PageArchive
    rows: int

    def execute(self, *statements: str, **parameters: object) -> None:
        with self.archive.database.transaction() as cursor:
            for statement in statements:
                cursor.execute(statement, parameters or None)

    def fill(self, overdue_rows: int) -> None:
        sizes = {"rows": self.rows, "overdue": overdue_rows, "now": NOW}
        self.execute(NODES, LIVENESS, **sizes)
        self.execute(
            "INSERT INTO fold_cursors VALUES ('registration', %(position)s)",
            position=position_at(NOW),
        )
        self.execute(
            "INSERT INTO deadline_watches VALUES ('registration', %(now)s, %(long_ago)s)",
            now=NOW,
            long_ago=NOW - timedelta(days=1),
        )
        with self.archive.database.engine.connect() as connection:
            free = connection.execution_options(isolation_level="AUTOCOMMIT")
            free.exec_driver_sql("VACUUM ANALYZE")

    def forget_facts(self) -> None:
        self.execute(
            "TRUNCATE fact_inbox, declared_expiries, scan_positions, expiry_holds",
            "UPDATE deadline_watches SET scanned_at = NULL, scanned_before = NULL",
        )

    def find(self) -> int:
        found, place = 0, overdue.BEGINNING
        while True:
            with self.archive.database.transaction() as cursor:
                page = overdue.read_page(
                    cursor, self.archive.domain, KIND, NOW, place, LIMITS.batch_rows, ACK_WINDOW
                )
            found += len(page.passed)
            if page.end is None:
                return found
            place = page.end

    def plan(self) -> str:
        parameters = {
            "domain": self.archive.domain,
            "before": NOW,
            "after": overdue.BEGINNING.deadline,
            "after_id": overdue.BEGINNING.entity_id,
            "limit": LIMITS.batch_rows,
        }
        query = f"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) {overdue.keys_query(KIND)}"
        with self.archive.database.transaction() as cursor:
            return "\n".join(line for (line,) in cursor.execute(query, parameters))


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def measure(registries: list[Registry], overdue_rows: int, rounds: int) -> dict[str, list[float]]:
    """Medians of each piece of work, one per registry. The first round warms up."""
    seconds: dict[str, list[list[float]]] = {
        name: [[] for _ in registries] for name in ("find", "scan", "idle")
    }
    for _ in range(rounds + 1):
        for number, registry in enumerate(registries):
            registry.forget_facts()
            seconds["find"][number].append(timed(registry.find))
            started = time.perf_counter()
            account = scan(registry.archive.platform, NOW)
            seconds["scan"][number].append(time.perf_counter() - started)
            assert (account.expired, account.held) == (overdue_rows, 0), account
            seconds["idle"][number].append(
                timed(lambda: note_watch(registry.archive.platform, NOW))  # noqa: B023
            )
    return {
        name: [statistics.median(series[1:]) for series in columns]
        for name, columns in seconds.items()
    }


def registry_of(settings: Settings, rows: int, opened: ExitStack) -> Registry:
    migrate(settings)
    settings = settings.model_copy(update={"deadlines": LIMITS})
    return Registry(opened.enter_context(open_archive(settings, load_catalogue())), rows)


@click.command()
@click.option("--rows", "sizes", multiple=True, type=int, default=(100_000, 1_000_000))
@click.option("--overdue", "overdue_rows", default=10_000, show_default=True)
@click.option("--rounds", default=5, show_default=True)
def main(sizes: tuple[int, ...], overdue_rows: int, rounds: int) -> None:
    with ExitStack() as opened:
        registries = [
            registry_of(opened.enter_context(scratch_database()), rows, opened) for rows in sizes
        ]
        for registry in registries:
            registry.fill(overdue_rows)
            print(
                f"\n{registry.rows:,} nodes, {overdue_rows:,} overdue; a page of them is found by"
            )
            print(registry.plan())
        medians = measure(registries, overdue_rows, rounds)
    print(f"\n{'':<6}" + "".join(f"{rows:>16,}" for rows in sizes))
    for name, values in medians.items():
        cells = (f"{value * 1000:8.1f} ms {value / values[0]:3.2f}" for value in values)
        print(f"{name:<6}" + "".join(f"{cell:>16}" for cell in cells))
    print("Beside each median its ratio to that of the smallest registry.")


if __name__ == "__main__":
    main()
