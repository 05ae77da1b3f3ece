"""The pipeline without Dagster: for containers and terminals, with the same loop and lease.

Of any number of instances one works; the others stand by, warm.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NoReturn

from onex_platform.context import PlatformContext
from onex_platform.domain.order import position_at
from onex_platform.engines.postgres.leases import LeaseKeeper, LeaseLostError
from onex_platform.ingest.archive import PageArchive
from onex_platform.ingest.cuts.consistent_cut import whole_tick
from onex_platform.pipeline.loop import DrainAccount
from onex_platform.pipeline.service import ServiceAccount, work
from onex_platform.pipeline.tenure import Terms
from onex_platform.projections.fold.checkpoint import fold_position
from onex_platform.projections.write.outbox import waiting
from onex_platform.topics.signals import Published

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Say = Callable[[str], None]
# The registry's own events come back through Kafka a moment after they were published.
_ECHO_SECONDS = 1.0


class _NothingLeftError(Exception):
    """Somebody else did all that was to be done."""


def run_once(
    spark: SparkSession,
    archive: PageArchive,
    keeper: LeaseKeeper,
    published: Published,
    say: Say,
    on_progress: Callable[[DrainAccount], None],
) -> ServiceAccount | None:
    """Drain and publish what waits now; None if somebody else did it meanwhile."""
    goal = whole_tick(datetime.now(UTC))

    def end_if_done() -> None:
        if _is_done(archive.platform, goal):
            raise _NothingLeftError

    try:
        return work(
            spark,
            archive,
            keeper,
            published=published,
            terms=Terms(bounded=False, linger_seconds=_ECHO_SECONDS),
            while_waiting=end_if_done,
            on_lease=lambda: say("The lease is ours: draining what waits"),
            on_progress=on_progress,
        )
    except _NothingLeftError:
        return None


def follow(
    spark: SparkSession,
    archive: PageArchive,
    keeper: LeaseKeeper,
    published: Published,
    say: Say,
    on_progress: Callable[[DrainAccount], None],
) -> NoReturn:
    """Stand by, drain, and stand by again, until this process is told to end or its Spark dies."""
    while True:
        say("Standing by")
        try:
            work(
                spark,
                archive,
                keeper,
                published=published,
                terms=Terms(bounded=False, linger_seconds=math.inf),
                on_lease=lambda: say("The lease is ours: draining"),
                on_progress=on_progress,
            )
            say("Handed over")
        except LeaseLostError as error:
            say(error.message)


def _is_done(platform: PlatformContext, goal: datetime) -> bool:
    """Whether everything that was appended before `goal` is folded and published."""
    with platform.database.transaction() as cursor:
        folded = fold_position(cursor, platform.domain) >= position_at(goal)
        return folded and not any(waiting(cursor, platform.domain))
