"""A run that waits is woken by a record, once, and by nothing that the log has already."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from onex_platform.base.settings import KafkaSettings, Settings
from onex_platform.domain.events import EnumEventKind
from onex_platform.engines.kafka.broker_clock import broker_clock
from onex_platform.ingest.cuts.settling import settling
from onex_platform.pipeline import record_watch
from onex_platform.pipeline.record_watch import watching_records
from onex_platform_tests.support.archives import open_archive
from onex_platform_tests.support.broker import send, sent
from onex_platform_tests.support.waiting import let_clock_pass

pytestmark = pytest.mark.servers

Kind = EnumEventKind
LONG, SHORT = 60.0, 0.3
NO_SPARK = cast("Any", None)  # so small a cut needs none


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """What was slept, without the time that it takes."""
    slept: list[float] = []
    with monkeypatch.context() as patched:
        clock = SimpleNamespace(monotonic=time.monotonic, sleep=slept.append)
        patched.setattr(record_watch, "time", clock)
        yield slept


def test_a_record_wakes_once_until_the_log_has_it(
    pipeline_settings: Settings, pauses: list[float]
) -> None:
    settings = pipeline_settings
    with open_archive(settings) as archive, watching_records(archive.platform) as wait:
        wait(SHORT)
        assert sum(pauses) < SHORT  # nothing came, and the broker was asked all the time
        pauses.clear()
        send(settings, [sent(Kind.NODE_HEARTBEAT, "node-1")])
        wait(LONG)
        [settled] = pauses
        assert settling(settings).seconds < settled < settling(settings).seconds + 0.1
        pauses.clear()
        wait(SHORT)  # nobody took it, and it wakes nobody again
        assert sum(pauses) < SHORT
        send(settings, [sent(Kind.NODE_HEARTBEAT, f"node-{n}") for n in range(20)])
        taken = archive.take_cut(NO_SPARK, datetime.now(UTC) + timedelta(seconds=1))
        assert taken is not None
        assert taken.account.archived == 21
        pauses.clear()
        wait(SHORT)  # the log has them all
        assert sum(pauses) < SHORT
        send(settings, [sent(Kind.NODE_ACK, "node-1")])
        pauses.clear()
        wait(LONG)
        assert len(pauses) == 1


def test_a_record_behind_one_that_nobody_waited_for_wakes_as_well(
    pipeline_settings: Settings, pauses: list[float]
) -> None:
    settings, woken, rounds = pipeline_settings, 0, 5
    with open_archive(settings) as archive, watching_records(archive.platform) as wait:
        wait(SHORT)
        for _ in range(rounds):
            # It is fetched, and taken by a cut before anybody waits.
            send(settings, [sent(Kind.NODE_HEARTBEAT, "node-1")])
            let_clock_pass(datetime.now(UTC) + timedelta(seconds=0.1))
            archive.take_cut(NO_SPARK, datetime.now(UTC) + timedelta(seconds=1))
            pauses.clear()
            send(settings, [sent(Kind.NODE_HEARTBEAT, "node-1")])
            wait(SHORT)
            woken += any(pause > settling(settings).seconds for pause in pauses)
            archive.take_cut(NO_SPARK, datetime.now(UTC) + timedelta(seconds=1))
    assert woken > rounds / 2  # a busy machine may be late once


def test_a_broker_that_is_away_is_not_asked_again_and_again(
    pipeline_settings: Settings, pauses: list[float]
) -> None:
    nowhere = pipeline_settings.model_copy(
        update={"kafka": KafkaSettings(bootstrap_servers="127.0.0.1:1", connect_timeout_seconds=1)}
    )
    assert broker_clock("127.0.0.1:1").behind_at_most is None
    with open_archive(pipeline_settings) as archive:
        platform = replace(archive.platform, settings=nowhere)
        with watching_records(platform) as wait:
            wait(LONG)
    [rest] = pauses
    assert 0 < rest < LONG
