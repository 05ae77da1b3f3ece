"""The pipeline's loop: cut after cut into the log, and every cut onto the rows, until caught up.

One run drains what has piled up and then lingers, so that steady traffic pays neither for the
launch of a run nor for a cold Spark session. It keeps no position of its own: whoever runs next,
here or elsewhere, goes on from what PostgreSQL says.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from onex_platform.base.errors import interruption_behind
from onex_platform.base.settings import PipelineSettings
from onex_platform.domain.states import EnumOutcome
from onex_platform.ingest.archive import PageArchive
from onex_platform.ingest.cuts.committed_cuts import RivalCutError
from onex_platform.ingest.cuts.consistent_cut import whole_tick
from onex_platform.projections.fold.reducer import fold_log, policy_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(slots=True)
class DrainAccount:
    """What a run did; numbers for metadata, metrics and people."""

    cuts: int = 0
    archived: int = 0
    parked: int = 0
    duplicates: int = 0
    echoes: int = 0  # duplicates that are not archived
    batches: int = 0
    facts: int = 0
    rows: int = 0
    outcomes: Counter[EnumOutcome] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=dict)  # where the time went, by step
    caught_up: bool = False

    @property
    def read(self) -> int:
        return self.archived + self.parked + self.echoes

    @contextmanager
    def timing(self, step: str) -> Iterator[None]:
        """Count the block's time to this step."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.spent(step, time.monotonic() - began)

    def spent(self, step: str, seconds: float) -> None:
        """Count time to a step; those that overlap count in full."""
        self.seconds[step] = self.seconds.get(step, 0.0) + seconds


# What else a run does after each look at the topics; says whether it did something.
Companion = Callable[[DrainAccount], bool]


class Term(Protocol):
    """For how long a run works, and what it makes of trouble."""

    @property
    def linger_seconds(self) -> float:
        """How long it waits for more once it is caught up."""

    def is_over(self, account: DrainAccount) -> bool:
        """Whether to end now; asked before every step."""

    def outlasts(self, error: Exception) -> bool:
        """Wait until the step is worth trying again; False: the error ends the run."""

    def works(self) -> None:
        """Told after every step that succeeded."""


class FixedTerm:
    """A run that nobody succeeds: it ends at its bounds, and with the first error."""

    def __init__(self, pipeline: PipelineSettings, linger_seconds: float | None = None) -> None:
        self.linger_seconds = pipeline.linger_seconds if linger_seconds is None else linger_seconds
        self._records = pipeline.run_records
        self._end = time.monotonic() + pipeline.run_seconds

    def is_over(self, account: DrainAccount) -> bool:
        return time.monotonic() >= self._end or account.read >= self._records

    def outlasts(self, error: Exception) -> bool:
        return False

    def works(self) -> None:
        return


def drain(
    spark: SparkSession,
    archive: PageArchive,
    *,
    linger_seconds: float | None = None,
    term: Term | None = None,
    companions: Sequence[Companion] = (),
    wait: Callable[[float], None] = time.sleep,
    on_progress: Callable[[DrainAccount], None] = lambda account: None,
) -> DrainAccount:
    """Take and fold cuts until nothing new came for the linger time, or the term is over.

    Whatever was in the topics when the run began is folded when it ends, unless its term ends it
    before. `companions` are called after each fold; one that did something keeps the run awake like
    a record would. `wait` is how to pass the time between two looks, in seconds at most.
    """
    pipeline = archive.settings.pipeline
    term = term or FixedTerm(pipeline, linger_seconds)
    account = DrainAccount()
    goal = whole_tick(datetime.now(UTC))
    busy = time.monotonic()
    while not term.is_over(account):
        try:
            moved = _take_cut(spark, archive, account, datetime.now(UTC))
            moved |= _fold(spark, archive, account)
            for companion in companions:
                moved |= companion(account)
            idle = not moved and time.monotonic() - busy >= term.linger_seconds
            account.caught_up = idle and archive.cuts.head() >= goal
        except Exception as error:
            if (told_to_end := interruption_behind(error)) is not None:
                raise told_to_end from error
            if not term.outlasts(error):
                raise
            continue
        term.works()
        if moved:
            busy = time.monotonic()
            on_progress(account)
        elif account.caught_up:
            break
        else:
            wait(min(pipeline.poll_seconds, term.linger_seconds))
    return account


def _take_cut(
    spark: SparkSession, archive: PageArchive, account: DrainAccount, now: datetime
) -> bool:
    """Whether records came in; a rival that took the cut first is no reason to stop."""
    try:
        with account.timing("archive"):
            taken = archive.take_cut(spark, now)
    except RivalCutError:
        return True
    if taken is None:
        return False
    account.cuts += 1
    account.archived += taken.account.archived
    account.parked += taken.account.parked
    account.duplicates += taken.account.duplicates
    account.echoes += taken.account.echoes
    account.outcomes[EnumOutcome.DUPLICATE] += taken.account.echoes
    return taken.account.read > 0


def _fold(spark: SparkSession, archive: PageArchive, account: DrainAccount) -> bool:
    with account.timing("fold"):
        batch = fold_log(spark, archive.log, datetime.now(UTC), policy_of(archive.settings))
    if batch is None:
        return False
    if not batch.committed:  # a rival was first, and may have left something
        return True
    account.batches += 1
    account.facts += batch.facts
    account.rows += batch.written.rows
    account.outcomes += batch.outcomes
    return bool(batch.outcomes.total())
