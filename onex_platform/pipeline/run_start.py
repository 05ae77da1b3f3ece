"""Is a run to be started? Judged by leases and by what waits, never by what Dagster remembers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from onex_platform.base.paths import code_version
from onex_platform.context import PlatformContext
from onex_platform.engines.postgres.leases import (
    LeaseRecord,
    draining_lease,
    leases_of_runs,
    living,
)
from onex_platform.projections.backlog import Backlog, measure_backlog

# Of each lease, the newest claim that this process found when it first looked. A run that it starts
# itself may have other code, because somebody edits a file; it must not be succeeded for that.
_newest_at_start: dict[str, int] = {}


class Wanted(NamedTuple):
    """Whether to start a run, and why or why not."""

    start: bool
    reason: str


def judge(platform: PlatformContext, run_ids: Sequence[str]) -> Wanted:
    """Whether to start a draining run, given those that Dagster has in flight and that live."""
    name = draining_lease(platform.domain)
    leases = living(platform.database, name)
    claims = leases_of_runs(platform.database, list(run_ids))
    # A run that has worked already only checks its rows; one without a claim is on its way.
    coming = [run for run, own in claims.items() if all(lease.name != name for lease in own)]
    known = _newest_at_start.setdefault(name, max((lease.number for lease in leases), default=0))
    wanted = wanted_by_leases(
        leases, len(coming), platform.settings.pipeline.warm_runs, code_version(), known
    )
    return wanted if wanted is not None else wanted_by_backlog(measure_backlog(platform))


def wanted_by_leases(
    leases: Sequence[LeaseRecord],
    coming: int,
    warm_runs: int,
    version: str,
    newest_at_start: int,
) -> Wanted | None:
    """What living claims of the lease, and runs on their way to one, say; None: nothing.

    Whoever claimed before this process began, up to number `newest_at_start`, may run older code.
    """
    holder = next((lease for lease in leases if lease.taken_at is not None), None)
    waiting = [lease for lease in leases if lease.taken_at is None]
    if holder is None:
        if waiting or coming:
            return Wanted(False, "A run is about to take the lease.")
        return Wanted(True, "A warm run is to be kept.") if warm_runs else None
    if waiting or coming:
        return Wanted(False, f"{holder.owner} drains, and its successor is there or on its way.")
    if holder.succession_at is not None:
        return Wanted(True, f"{holder.owner} nears its bounds and wants a successor.")
    if holder.version != version and holder.number <= newest_at_start:
        return Wanted(True, f"{holder.owner} runs other code: {holder.version}.")
    if warm_runs > 1:
        return Wanted(True, f"{holder.owner} drains, and nobody stands by.")
    return Wanted(False, f"{holder.owner} drains.")


def wanted_by_backlog(backlog: Backlog) -> Wanted:
    return Wanted(True, str(backlog)) if backlog else Wanted(False, "Nothing waits.")
