"""Is Spark still there? A run whose Spark died or was stopped must not keep its lease.

A call into a JVM that is stopped waits for ever, and the thread that renews the lease would go on
renewing it. So Spark is asked a small question every second, beside whatever it is doing. A busy
one answers; one that does not for `stall_seconds` has ended the run: the lease is given back, and
the JVM that this process started is killed, which ends the call that waits for it.
"""

from __future__ import annotations

import _thread
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from onex_platform.base.errors import InfraConnectionError
from onex_platform.base.telemetry import get_logger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_QUESTION = "spark.sql.session.timeZone"
_PAUSE_SECONDS = 1.0


class SparkLostError(InfraConnectionError):
    """Spark died or was stopped under the run."""


class SparkWatch:
    """Asks Spark in one thread, and judges its answers in another."""

    def __init__(
        self, spark: SparkSession, stall_seconds: float, on_loss: Callable[[], None]
    ) -> None:
        self.reason: str | None = None  # why Spark is taken for lost
        self._spark = spark
        self._stall = stall_seconds
        self._on_loss = on_loss
        self._answered = time.monotonic()
        self._error: Exception | None = None
        self._closing = threading.Event()

    def start(self) -> None:
        for target in (self._ask, self._judge):
            threading.Thread(target=target, name="spark-watch", daemon=True).start()

    def stop(self) -> None:
        self._closing.set()

    def loss(self) -> SparkLostError | None:
        """What there is to say if Spark is lost."""
        if self.reason is None:
            return None
        return SparkLostError(
            self.reason, hint="The lease is given back; whoever stands by takes over."
        )

    def require(self) -> None:
        """Raise if Spark is lost."""
        if (loss := self.loss()) is not None:
            raise loss

    def _ask(self) -> None:
        while not self._closing.is_set():
            try:
                self._spark.conf.get(_QUESTION)
            except Exception as error:
                self._error = error
                return
            self._answered = time.monotonic()
            self._closing.wait(_PAUSE_SECONDS)

    def _judge(self) -> None:
        while not self._closing.wait(_PAUSE_SECONDS / 4):
            if self._error is not None:
                text = " ".join(str(self._error).split()) or type(self._error).__name__
                self._lose(f"Spark is gone: {text}.")
                return
            silence = time.monotonic() - self._answered
            if silence > self._stall + _PAUSE_SECONDS:
                self._lose(f"Spark has not answered for {silence:.0f} s.")
                return

    def _lose(self, reason: str) -> None:
        if self._closing.is_set():
            return
        self.reason = reason
        get_logger(__name__).error("pipeline.spark_lost", reason=reason)
        self._on_loss()
        if (jvm := _own_jvm(self._spark)) is not None:
            with suppress(OSError):
                jvm.kill()
        else:  # a Connect server is not ours to kill: the call that waits for it is interrupted
            _thread.interrupt_main()


@contextmanager
def watched_spark(
    spark: SparkSession, stall_seconds: float, on_loss: Callable[[], None]
) -> Iterator[SparkWatch]:
    """Watch Spark for the block. Whatever its loss raised inside leaves as `SparkLostError`."""
    watch = SparkWatch(spark, stall_seconds, on_loss)
    watch.start()
    try:
        yield watch
    except BaseException:
        # Not behind it: whoever was interrupted to hear of the loss was not told to end.
        if (loss := watch.loss()) is not None:
            raise loss from None
        raise
    finally:
        watch.stop()


def _own_jvm(spark: SparkSession) -> Any | None:
    """The JVM that this process started, if it did."""
    context = getattr(spark, "_sc", None)
    return getattr(getattr(context, "_gateway", None), "proc", None)
