"""Signs of life on `platform.ctl.lease-heartbeat.v1`: of consumers, and of whoever holds a lease.

They say that work goes on, so whoever works gives them, between two pieces of it. Nobody waits for
the broker: a thread sends the newest one, and what it can't send is dropped and counted.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from onex_platform.base.settings import BreakerSettings, Settings
from onex_platform.base.telemetry import get_logger
from onex_platform.engines.kafka.clients import open_admin
from onex_platform.engines.kafka.topic_admin import topic_names
from onex_platform.topics.grammar import StreamName
from onex_platform.topics.schemas.published_values import publish_values, topic_of
from onex_platform.topics.signals import Published, impatient

LEASE_HEARTBEAT = StreamName("platform", "ctl", "lease-heartbeat", 1)
# A sign of life that is not sent is no reason to refuse others the broker.
_APART = BreakerSettings(failure_threshold=1000, reset_seconds=1)
_FAREWELL_SECONDS = 3.0


class Heart:
    """Sends signs of life under a name, at most one in so many seconds.

    `fence` is the number of the lease, for whoever holds one: of two holders the higher counts.
    """

    def __init__(
        self,
        settings: Settings,
        published: Published,
        lease_name: str,
        *,
        seconds: float,
        fence: int | None = None,
    ) -> None:
        self.sent = 0
        self.dropped = 0
        self._settings = impatient(settings).model_copy(update={"breaker": _APART})
        self._catalogue_now = published
        self._name = lease_name
        self._seconds = seconds
        self._fence = fence
        self._next = 0.0
        self._waiting: dict[str, Any] | None = None
        self._closing = False
        self._failing = False
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="heartbeats", daemon=True)

    def beat(self) -> None:
        """Say that the work goes on, if it is time to; called as often as one likes."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + self._seconds
            self._hand_over(is_last=False)

    def close(self, *, farewell: bool) -> None:
        """Send no more; `farewell`: this is an end as it should be, so nobody is missed."""
        if not self._next:
            return  # nobody has heard of it
        with self._news:
            if farewell:
                self._hand_over(is_last=True)
            self._closing = True
            self._news.notify()
        self._thread.join(_FAREWELL_SECONDS)

    def _hand_over(self, *, is_last: bool) -> None:
        value = {
            "lease_name": self._name,
            "occurred_at": datetime.now(UTC).isoformat(),
            "holder": f"process {os.getpid()} on {socket.gethostname()}",
            "fence": self._fence,
            "is_last": is_last,
        }
        with self._news:
            if self._closing:
                return
            self.dropped += self._waiting is not None
            self._waiting = value
            self._news.notify()
            if self._thread.ident is None:
                self._thread.start()

    def _run(self) -> None:
        while (value := self._taken()) is not None:
            try:
                sent = self._send(value)
                self._failing = False
            except Exception as error:  # it must not end before its work does
                sent = 0
                if not self._failing:
                    get_logger(__name__).warning("lease_heartbeats.not_sent", error=str(error))
                self._failing = True
            self.sent += sent
            self.dropped += not sent

    def _taken(self) -> dict[str, Any] | None:
        """The newest sign of life, as soon as there is one; None: it is the end."""
        with self._news:
            self._news.wait_for(lambda: self._waiting or self._closing)
            value, self._waiting = self._waiting, None
            return value

    def _send(self, value: dict[str, Any]) -> int:
        with open_admin(self._settings) as admin:
            there = topic_names(admin)
        if topic_of(str(LEASE_HEARTBEAT), self._settings.environment) not in there:
            return 0  # a cluster that has not got the topic yet
        with self._catalogue_now() as catalogue:
            values = [(LEASE_HEARTBEAT, self._name, value)]
            return publish_values(self._settings, catalogue, values, "delivery.beat")


@contextmanager
def beating(
    settings: Settings,
    published: Published | None,
    lease_name: str,
    *,
    seconds: float,
    fence: int | None = None,
) -> Iterator[Callable[[], None]]:
    """What gives a sign of life, for the block; without `published`, none are given.

    Whoever is ended by an error is missed; any other end is told.
    """
    if published is None:
        yield lambda: None
        return
    heart, farewell = Heart(settings, published, lease_name, seconds=seconds, fence=fence), True
    try:
        yield heart.beat
    except Exception:
        farewell = False
        raise
    finally:
        heart.close(farewell=farewell)
