"""One run at work: it holds the domain's lease, and hands over warm before its time is over.

- A run opens Spark and, while another one has the lease, rehearses its work and stands by. So
  whoever takes over has paid for its cold start before.
- A run that nears its bounds asks for a successor. Once one stands by, it ends after its present
  step, and the other goes on from what PostgreSQL says. Without one it goes on, up to twice its
  time: a late successor costs nobody an answer.
- A successor with other code, claimed later, is handed over to at once: that is how a new version
  takes over.
- A run outlasts servers that go away and come back. One that lost its lease, or its Spark, ends.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, Self

from onex_platform.base.errors import InfraError
from onex_platform.base.paths import code_version
from onex_platform.base.settings import PipelineSettings
from onex_platform.base.telemetry import get_logger
from onex_platform.engines.postgres.leases import Lease, LeaseKeeper, draining_lease
from onex_platform.pipeline.loop import DrainAccount
from onex_platform.pipeline.spark_watch import SparkWatch

# How often whoever stands by looks whether the lease is free.
_LOOK_SECONDS = 0.2
# How often the one at work looks for an heir that it did not ask for: one with other code.
_HEIR_SECONDS = 2.0
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 5.0
# Of its records, those after which a run asks for its successor.
_SHARE_BEFORE_HANDOVER = 0.9


class Terms(NamedTuple):
    """How long whoever holds the lease works: to its bounds, and how long without work."""

    bounded: bool
    linger_seconds: float

    @classmethod
    def of_run(cls, pipeline: PipelineSettings) -> Self:
        """Those of a run that others start and succeed."""
        return cls(True, math.inf if pipeline.warm_runs else pipeline.linger_seconds)


class Tenure:
    """The term of a run that holds the lease; see `loop.Term`."""

    def __init__(
        self,
        lease: Lease,
        keeper: LeaseKeeper,
        watch: SparkWatch,
        pipeline: PipelineSettings,
        terms: Terms,
    ) -> None:
        self.linger_seconds = terms.linger_seconds
        self.handed_over = False
        self._run_seconds = pipeline.run_seconds if terms.bounded else math.inf
        self._run_records = pipeline.run_records if terms.bounded else math.inf
        self._lease = lease
        self._keeper = keeper
        self._watch = watch
        self._pipeline = pipeline
        self._began = time.monotonic()
        self._asked = False
        self._heir_sought = 0.0
        self._has_worked = False
        self._trouble_since: float | None = None
        self._pause = _FIRST_PAUSE_SECONDS

    def is_over(self, account: DrainAccount) -> bool:
        self._lease.require()
        self._watch.require()
        if not self._asked and self._nears_its_end(account):
            self._lease.ask_for_successor()
            self._asked = True
        self.handed_over = self._has_heir()
        spent = time.monotonic() - self._began
        return self.handed_over or spent >= 2 * self._run_seconds

    def outlasts(self, error: Exception) -> bool:
        # Of a server that this run has never reached, its settings may be wrong: that is told.
        if not self._has_worked or not _may_pass(error):
            return False
        self._lease.require()
        self._watch.require()
        now = time.monotonic()
        if self._trouble_since is None:
            self._trouble_since = now
            get_logger(__name__).warning("pipeline.waits_for_servers", error=str(error))
        if now - self._trouble_since > self._pipeline.outage_seconds:
            return False
        # A renewal that succeeds says that PostgreSQL is back, without another failure for its
        # breaker to count.
        self._keeper.await_renewal(_LONGEST_PAUSE_SECONDS)
        time.sleep(self._pause)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE_SECONDS)
        return True

    def works(self) -> None:
        if self._trouble_since is not None:
            outage = time.monotonic() - self._trouble_since
            get_logger(__name__).info("pipeline.goes_on", outage_seconds=round(outage, 1))
        self._has_worked = True
        self._trouble_since, self._pause = None, _FIRST_PAUSE_SECONDS

    def _nears_its_end(self, account: DrainAccount) -> bool:
        left = self._run_seconds - (time.monotonic() - self._began)
        return (
            left <= self._pipeline.handover_seconds
            or account.read >= _SHARE_BEFORE_HANDOVER * self._run_records
        )

    def _has_heir(self) -> bool:
        now = time.monotonic()
        if not self._asked and now - self._heir_sought < _HEIR_SECONDS:
            return False
        self._heir_sought = now
        try:
            heir = self._lease.heir()
        except InfraError:  # the steps find out for themselves
            return False
        if heir is None:
            return False
        return self._asked or (heir.number > self._lease.number and heir.version != code_version())


@contextmanager
def held_lease(
    keeper: LeaseKeeper,
    domain: str,
    *,
    run_id: str | None,
    warm_up: Callable[[], None],
    while_waiting: Callable[[], None],
) -> Iterator[Lease]:
    """Claim the domain's lease, and hold it for the block as soon as it is free.

    If somebody else has it, this one warms up and stands by. If nobody has, there is work to do and
    no time to rehearse it. `while_waiting` is called between two looks, and may raise to end the
    wait. At the end of the block the lease is given back, whatever ended it.
    """
    lease = keeper.claim(draining_lease(domain), exclusive=True, run_id=run_id)
    try:
        if not _taken(lease):
            warm_up()
            lease.stand_by()
            while not _taken(lease):
                while_waiting()
                time.sleep(_LOOK_SECONDS)
        yield lease
    finally:
        lease.end()


def _taken(lease: Lease) -> bool:
    lease.require()
    try:
        return lease.take()
    except InfraError:  # it is renewed and tried again as soon as PostgreSQL is back
        return False


def _may_pass(error: Exception) -> bool:
    """Whether the trouble may be a server's that comes back."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    return isinstance(error, InfraError | PySparkException | Py4JJavaError)
