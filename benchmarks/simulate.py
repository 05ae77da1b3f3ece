"""How fast a history gets into a Parquet file, beside the bare cost of writing the same bytes.

    python benchmarks/simulate.py --events 1000000 --nodes 1000 --profile default

Three figures of one run: the fleet alone, the fleet into a file, and pyarrow writing the finished
table once more with the same row groups and compression. Processor seconds hardly depend on what
else the machine does; the ratio is made of them, and is what to compare between machines.
"""

from __future__ import annotations

import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import click
import pyarrow.parquet as pq

from onex_platform.domain.deadlines import Durations
from onex_platform.simulate.fleet import Fleet
from onex_platform.simulate.history_files import COMPRESSION, ROWS_PER_GROUP, write_file
from onex_platform.simulate.plan import FleetPlan, duration_for
from onex_platform.simulate.profiles import PROFILES
from onex_platform.simulate.routes import routes_of
from onex_platform.topics.catalogue import load_catalogue


@click.command()
@click.option("--events", default=1_000_000, show_default=True)
@click.option("--nodes", default=1_000, show_default=True)
@click.option("--profile", type=click.Choice(list(PROFILES)), default="default", show_default=True)
def main(events: int, nodes: int, profile: str) -> None:
    plan = FleetPlan(
        nodes=nodes,
        max_events=events,
        duration=duration_for(events, nodes, Durations()),
        profile=PROFILES[profile],
    )
    routes = routes_of(load_catalogue())
    with tempfile.TemporaryDirectory() as folder:
        path, copy = Path(folder, "history.parquet"), Path(folder, "copy.parquet")
        fleet_alone = _timed(lambda: deque(Fleet(plan, routes), maxlen=0))
        into_file = _timed(lambda: write_file(Fleet(plan, routes), path))
        table = pq.read_table(path)
        bare = _timed(
            lambda: pq.write_table(
                table, copy, row_group_size=ROWS_PER_GROUP, compression=COMPRESSION
            )
        )
        size_mb = path.stat().st_size / 1e6
    rows = table.num_rows
    print(f"{rows} events of {nodes} nodes, profile {profile}: {size_mb:.0f} MB on disk")
    for name, cost in (
        ("the fleet alone", fleet_alone),
        ("the fleet into a file", into_file),
        ("pyarrow, the same table", bare),
    ):
        print(
            f"{name:<24} wall {cost.wall:6.2f} s  processor {cost.processor:6.2f} s"
            f"  {rows / cost.wall:10,.0f} events/s"
        )
    print(f"a simulated event costs {into_file.processor / bare.processor:.1f} bare ones")


class _Cost(NamedTuple):
    wall: float
    processor: float


def _timed(work: Callable[[], object]) -> _Cost:
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return _Cost(time.perf_counter() - wall, time.process_time() - processor)


if __name__ == "__main__":
    main()
