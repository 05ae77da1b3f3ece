"""Publishing while the next cut is taken: one at a time, and nothing that goes wrong is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from onex_platform.base.errors import InfraConnectionError
from onex_platform.pipeline.loop import DrainAccount
from onex_platform.pipeline.service import Publisher, ServiceAccount
from onex_platform.snapshots.publish.relay import RelayAccount

_PATIENCE_SECONDS = 20
_LARGE = 100


class Relay:
    """Publishes one snapshot after the other, each when it is let."""

    def __init__(self, outcome: Callable[[], RelayAccount]) -> None:
        self.begun, self.let = threading.Semaphore(0), threading.Semaphore(0)
        self._outcome = outcome

    def publish_pending(self, seconds: float) -> RelayAccount:
        self.begun.release()
        assert self.let.acquire(timeout=_PATIENCE_SECONDS)
        return self._outcome()


def raising(error: BaseException) -> Callable[[], RelayAccount]:
    def outcome() -> RelayAccount:
        raise error

    return outcome


def publisher(relay: Relay) -> tuple[Publisher, ServiceAccount]:
    account = ServiceAccount(DrainAccount())
    return Publisher(cast("Any", relay), account, large_batch=_LARGE), account


def test_the_loop_goes_on_while_something_is_published() -> None:
    relay, drained = Relay(lambda: RelayAccount(snapshots=1)), DrainAccount()
    publish, account = publisher(relay)
    with publish:
        assert not publish(drained)
        assert relay.begun.acquire(timeout=_PATIENCE_SECONDS)  # and here we are, meanwhile
        assert account.published.snapshots == 0
        relay.let.release()
        assert publish(drained)  # what came of the first, and the second begins
        assert account.published.snapshots == 1
        relay.let.release()
        assert publish.collect(drained)
        assert not publish.collect(drained)
    assert account.published.snapshots == 2
    assert drained.seconds["publish"] > 0


def test_what_the_broker_does_not_take_is_noted_and_does_not_stop_the_run() -> None:
    relay = Relay(raising(InfraConnectionError("Kafka is away.")))
    publish, account = publisher(relay)
    with publish:
        publish(DrainAccount())
        relay.let.release()
        assert not publish.collect(DrainAccount())
    assert account.failures == ["Kafka is away."]


@pytest.mark.parametrize("error", [ValueError("a fault of ours"), KeyboardInterrupt()])
def test_any_other_failure_ends_the_run(error: BaseException) -> None:
    relay = Relay(raising(error))
    publish, account = publisher(relay)
    with publish:
        publish(DrainAccount())
        relay.let.release()
        with pytest.raises(type(error)):
            publish(DrainAccount())
    assert account.failures == []


def test_whoever_leaves_waits_for_what_is_under_way() -> None:
    relay = Relay(RelayAccount)
    publish, _ = publisher(relay)
    with pytest.raises(ValueError, match="of the loop"), publish:
        publish(DrainAccount())
        relay.let.release()
        raise ValueError("of the loop")
    assert not [thread for thread in threading.enumerate() if "publisher" in thread.name]


def test_what_a_large_batch_led_to_waits_for_one_cut_and_then_the_loop_for_it() -> None:
    ended = threading.Event()

    def outcome() -> RelayAccount:
        ended.set()
        return RelayAccount(snapshots=1)

    relay = Relay(outcome)
    publish, account = publisher(relay)
    herd, stragglers = DrainAccount(rows=60, facts=60), DrainAccount(rows=65, facts=65)
    with publish:
        assert publish(herd)
        assert not relay.begun.acquire(blocking=False)
        threading.Timer(0.2, relay.let.release).start()
        publish(stragglers)
        assert ended.is_set()
        publish.finish(stragglers)
        assert account.published.snapshots == 1
        relay.let.release()
        publish(stragglers)
        publish.finish(stragglers)
    assert account.published.snapshots == 2


def test_a_run_that_ends_before_that_cut_publishes_all_the_same() -> None:
    relay = Relay(lambda: RelayAccount(snapshots=1))
    publish, account = publisher(relay)
    with publish:
        publish(DrainAccount(rows=_LARGE + 1))
        relay.let.release()
        publish.finish(DrainAccount())
    assert account.published.snapshots == 1


def test_large_batches_one_after_the_other_are_published() -> None:
    relay = Relay(lambda: RelayAccount(snapshots=1))
    publish, account = publisher(relay)
    with publish:
        publish(DrainAccount(rows=200))
        relay.let.release()
        publish(DrainAccount(rows=400))
        publish.finish(DrainAccount())
    assert account.published.snapshots == 1
