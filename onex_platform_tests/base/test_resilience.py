"""The shared circuit breaker: when it opens, what it refuses, who hears of it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Barrier, Event

import pytest

from onex_platform.base.errors import (
    InfraConnectionError,
    InfraError,
    InfraTimeoutError,
    InfraUnavailableError,
)
from onex_platform.base.resilience import BreakerStateChange, CircuitBreaker, shared_breaker
from onex_platform.base.settings import BreakerSettings
from onex_platform_tests.support.waiting import eventually

_SHORT = BreakerSettings(reset_seconds=0.05)
_LONG = BreakerSettings(reset_seconds=3600)


def _fail(breaker: CircuitBreaker, error: BaseException) -> None:
    with pytest.raises(type(error)), breaker.guard():
        raise error


def _opened(settings: BreakerSettings) -> CircuitBreaker:
    breaker = CircuitBreaker("kafka", settings)
    for _ in range(settings.failure_threshold):
        _fail(breaker, InfraConnectionError("away"))
    assert breaker.state == "OPEN"
    return breaker


def _admitted_after_reset(breaker: CircuitBreaker, block: Callable[[], None]) -> None:
    """Run `block` in the trial call, which is due as soon as the reset time has passed."""

    def is_admitted() -> bool:
        try:
            with breaker.guard():
                block()
        except InfraUnavailableError:
            return False
        return True

    assert eventually(is_admitted, 5), "no trial call was let through"


@pytest.mark.parametrize("error", [InfraConnectionError("away"), InfraTimeoutError("slow")])
def test_opens_at_the_fifth_failure_in_a_row_and_not_before(error: InfraError) -> None:
    breaker = CircuitBreaker("kafka", _LONG)
    for _ in range(4):
        _fail(breaker, error)
    assert breaker.state == "CLOSED"
    _fail(breaker, error)
    assert breaker.state == "OPEN"


def test_refuses_at_once_while_open_and_says_which_service() -> None:
    breaker = _opened(_LONG)
    with (
        pytest.raises(InfraUnavailableError, match="kafka failed 5 times") as refusal,
        breaker.guard(),
    ):
        raise AssertionError("the call must not run")
    assert "3600 s" in str(refusal.value)


def test_a_success_in_between_starts_the_count_anew() -> None:
    breaker = CircuitBreaker("kafka", _LONG)
    for _ in range(3):
        for _ in range(4):
            _fail(breaker, InfraConnectionError("away"))
        with breaker.guard():
            pass
    assert breaker.state == "CLOSED"


@pytest.mark.parametrize("error", [ValueError("ours"), InfraError("refused"), KeyboardInterrupt()])
def test_other_errors_pass_through_and_do_not_count(error: BaseException) -> None:
    breaker = CircuitBreaker("kafka", _LONG)
    for _ in range(20):
        _fail(breaker, error)
    assert breaker.state == "CLOSED"


def test_a_good_trial_closes_it() -> None:
    breaker = _opened(_SHORT)
    _admitted_after_reset(breaker, lambda: None)
    assert breaker.state == "CLOSED"


def test_a_failed_trial_opens_it_again_at_once() -> None:
    breaker = _opened(_SHORT)

    def trial() -> None:
        assert breaker.state == "HALF_OPEN"
        raise InfraTimeoutError("still slow")

    with pytest.raises(InfraTimeoutError):
        _admitted_after_reset(breaker, trial)
    assert breaker.state == "OPEN"


def test_listeners_hear_every_change_with_the_specified_fields() -> None:
    breaker = CircuitBreaker("kafka", _SHORT)
    heard: list[BreakerStateChange] = []
    breaker.add_listener(heard.append)
    for _ in range(5):
        _fail(breaker, InfraConnectionError("away"))
    _admitted_after_reset(breaker, lambda: None)
    assert heard == [
        BreakerStateChange("kafka", "CLOSED", "OPEN", 5, 0.05),
        BreakerStateChange("kafka", "OPEN", "HALF_OPEN", 0, 0.05),
        BreakerStateChange("kafka", "HALF_OPEN", "CLOSED", 0, 0.05),
    ]


def test_only_one_thread_gets_the_trial_call() -> None:
    breaker = _opened(_SHORT)
    admitted, verdict = Event(), Event()

    def hold_the_trial() -> None:
        admitted.set()
        assert verdict.wait(10)

    with ThreadPoolExecutor(1) as pool:
        trial = pool.submit(_admitted_after_reset, breaker, hold_the_trial)
        assert admitted.wait(10)
        with pytest.raises(InfraUnavailableError), breaker.guard():
            raise AssertionError("a second call must not run beside the trial")
        verdict.set()
        trial.result()
    assert breaker.state == "CLOSED"


def test_threads_failing_together_open_it_once() -> None:
    for _ in range(50):
        breaker = CircuitBreaker("kafka", _LONG)
        heard: list[BreakerStateChange] = []
        breaker.add_listener(heard.append)
        together = Barrier(8)

        def call(breaker: CircuitBreaker = breaker, together: Barrier = together) -> None:
            with breaker.guard():
                together.wait(10)
                raise InfraConnectionError("away")

        with ThreadPoolExecutor(8) as pool:
            calls = [pool.submit(call) for _ in range(8)]
        assert {type(done.exception()) for done in calls} == {InfraConnectionError}
        assert [change.new_state for change in heard] == ["OPEN"]


def test_a_call_from_before_the_opening_is_no_verdict_on_the_trial() -> None:
    breaker = CircuitBreaker("kafka", _SHORT)
    early = ExitStack()
    early.enter_context(breaker.guard())
    for _ in range(5):
        _fail(breaker, InfraConnectionError("away"))

    def trial() -> None:
        early.close()
        assert breaker.state == "HALF_OPEN"

    _admitted_after_reset(breaker, trial)
    assert breaker.state == "CLOSED"


def test_one_breaker_per_service_and_settings_is_shared() -> None:
    assert shared_breaker("kafka at a:1", _LONG) is shared_breaker("kafka at a:1", _LONG)
    assert shared_breaker("kafka at a:1", _LONG) is not shared_breaker("kafka at b:1", _LONG)


def test_who_was_interrupted_leaves_with_that_and_nothing_is_counted() -> None:
    breaker = CircuitBreaker("store", BreakerSettings(failure_threshold=1))
    with pytest.raises(KeyboardInterrupt), breaker.guard():
        try:
            raise KeyboardInterrupt
        finally:
            raise InfraConnectionError("The connection is in the middle of a query.")
    assert breaker.state == "CLOSED"
