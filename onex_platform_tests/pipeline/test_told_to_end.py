"""A run that is told to end, ends there and then, in whatever it was doing; nothing is lost."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from onex_platform.base.settings import Settings
from onex_platform.domain.events import EnumEventKind
from onex_platform.ingest.verification import verify_log
from onex_platform.pipeline import serve
from onex_platform_tests.support.archives import open_archive
from onex_platform_tests.support.broker import send, sent
from onex_platform_tests.support.folded_logs import require_live_equals_replay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.servers

_MOMENTS = 12
_NODES_EACH = 3


class ToldToEnd(BaseException):
    """As Dagster interrupts a run: an exception that no driver and no library knows."""


@contextmanager
def told_to_end_after(seconds: float) -> Iterator[None]:
    """Raise in this thread, wherever it is by then."""

    def interrupt(*_: object) -> None:
        raise ToldToEnd

    before = signal.signal(signal.SIGUSR1, interrupt)
    thread = threading.get_ident()
    timer = threading.Timer(seconds, signal.pthread_kill, (thread, signal.SIGUSR1))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.timeout(120)
def test_a_run_that_is_told_to_end_does_so_at_any_moment(
    spark: SparkSession, pipeline_settings: Settings
) -> None:
    chosen = random.Random(11)
    with open_archive(pipeline_settings) as archive:
        serve(spark, archive, linger_seconds=0.1)
        for _ in range(_MOMENTS):
            send(
                pipeline_settings,
                [sent(EnumEventKind.NODE_INTROSPECTION, str(uuid4())) for _ in range(_NODES_EACH)],
            )
            moment = chosen.uniform(0.0, 0.6)
            with pytest.raises(ToldToEnd), told_to_end_after(moment):
                serve(spark, archive, linger_seconds=10)
        drained = serve(spark, archive, linger_seconds=0.5).drained
        assert drained.caught_up
        assert verify_log(archive.log).faults == []
        require_live_equals_replay(archive)
        with archive.database.transaction() as cursor:
            [found] = cursor.execute("SELECT count(*) FROM registration_projections").fetchall()
        assert found[0] == _MOMENTS * _NODES_EACH
