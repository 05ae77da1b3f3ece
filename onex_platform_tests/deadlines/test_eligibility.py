"""Nobody is declared dead on the evidence of our own delay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from onex_platform.base.errors import InfraError
from onex_platform.base.settings import Settings
from onex_platform.capture.read.kafka_relay import PostgresRelayStore
from onex_platform.context import PlatformContext
from onex_platform.deadlines.eligibility import evident_until
from onex_platform.deadlines.scan import note_watch, scan
from onex_platform.domain.events import EnumEventKind
from onex_platform_tests.support.broker import send, sent
from onex_platform_tests.support.events import at
from onex_platform_tests.support.watched_clock import (
    MICROSECOND,
    MINUTE,
    Watched,
    open_watched,
    with_deadlines,
)

pytestmark = pytest.mark.servers

Kind = EnumEventKind
NOW = at(600)
WINDOW = timedelta(seconds=30)
GAP = timedelta(seconds=30)
GRACE = timedelta(seconds=90)
SECOND = timedelta(seconds=1)


def test_a_pipeline_ten_minutes_behind_expires_nobody(piped: Watched) -> None:
    now = datetime.now(UTC)
    piped.active(5, now - 5 * MINUTE)
    piped.watched_at(now)
    piped.folded_to(now - 10 * MINUTE)
    send(piped.archive.settings, [sent(Kind.NODE_HEARTBEAT, "somebody")])
    account = scan(piped.archive.platform, now)
    assert (account.overdue, account.judged_before) == (0, _tick(now - 10 * MINUTE))
    assert not note_watch(piped.archive.platform, now)
    piped.folded_to(now - 4 * MINUTE)
    assert scan(piped.archive.platform, now).expired == 3  # of five, by the floor


def test_nobody_expires_whose_heartbeats_a_snapshotter_may_hold(piped: Watched) -> None:
    now = datetime.now(UTC)
    piped.active(1, now - 5 * MINUTE)
    piped.watched_at(now)
    piped.folded_to(now - 10 * MINUTE)
    relay = PostgresRelayStore(piped.archive.database, "snapshotter-1")
    relay.advance({}, (now - 10 * MINUTE).timestamp())
    assert scan(piped.archive.platform, now).expired == 0
    relay.retire()
    assert scan(piped.archive.platform, now).expired == 1


def test_a_quiet_night_is_no_delay(piped: Watched) -> None:
    now = datetime.now(UTC)
    settle = timedelta(seconds=piped.archive.settings.pages.settle_seconds)
    piped.active(1, now - 5 * MINUTE)
    piped.watched_at(now)
    piped.folded_to(now - 10 * MINUTE)
    assert evident_until(piped.archive.platform, now) == now - settle
    assert scan(piped.archive.platform, now).expired == 1
    # The fact itself waits now: what came behind it is unknown until it is folded.
    assert evident_until(piped.archive.platform, now) == _tick(now - 10 * MINUTE)


def test_events_in_the_log_that_are_not_folded_are_a_delay(piped: Watched) -> None:
    now = datetime.now(UTC)
    piped.folded_to(now - 10 * MINUTE)
    piped.execute(
        "INSERT INTO log_cuts VALUES ('registration', %(a)s, %(b)s, 1, 1, 0, 0)",
        a=now - 3 * MINUTE,
        b=now - 2 * MINUTE,
    )
    assert evident_until(piped.archive.platform, now) == _tick(now - 10 * MINUTE)


def test_the_future_is_never_judged(watched: Watched) -> None:
    watched.folded_to(at(700))
    assert evident_until(watched.archive.platform, NOW) == NOW


@pytest.fixture
def cut_off(archive_settings: Settings) -> Iterator[Watched]:
    """The same registry, seen by somebody who can't reach the broker."""
    kafka = archive_settings.kafka.model_copy(
        update={
            "bootstrap_servers": "127.0.0.1:1",
            "connect_timeout_seconds": 0.2,
            "request_timeout_seconds": 1.0,
        }
    )
    with open_watched(archive_settings.model_copy(update={"kafka": kafka})) as opened:
        yield opened


@pytest.mark.parametrize("look", [scan, note_watch])
@pytest.mark.parametrize("last_look", [NOW - SECOND, NOW])
def test_without_the_broker_nothing_is_judged_and_the_next_watch_is_a_new_one(
    watched: Watched,
    cut_off: Watched,
    look: Callable[[PlatformContext, datetime], object],
    last_look: datetime,
) -> None:
    watched.active(1, at(0))
    watched.watched_at(last_look)
    watched.folded_to(at(300))
    with pytest.raises(InfraError):
        look(cut_off.archive.platform, NOW)
    assert watched.waiting() == []
    watched.folded_to(NOW + SECOND)
    # A moment's absence is no gap, but the nodes could not reach the broker either.
    assert scan(watched.archive.platform, NOW + SECOND, dry_run=True).in_grace == 1
    assert scan(watched.archive.platform, NOW + SECOND).grace_until == NOW + SECOND + GRACE
    for seconds in range(20, 91, 10):
        watched.folded_to(NOW + seconds * SECOND)
        assert not note_watch(watched.archive.platform, NOW + seconds * SECOND)
    watched.folded_to(NOW + 92 * SECOND)
    assert scan(watched.archive.platform, NOW + 92 * SECOND).expired == 1


def test_whoever_only_asks_what_would_be_breaks_no_watch(
    watched: Watched, cut_off: Watched
) -> None:
    watched.watched_at(NOW - SECOND)
    watched.folded_to(at(300))
    before = watched.store.physical("deadline_watches")
    with pytest.raises(InfraError):
        scan(cut_off.archive.platform, NOW, dry_run=True)
    assert watched.store.physical("deadline_watches") == before


def test_a_first_start_begins_with_a_grace(watched: Watched) -> None:
    watched.active(1, at(0))
    for seconds in (600, 630, 660, 690):
        watched.folded_to(at(seconds))
        account = scan(watched.archive.platform, at(seconds))
        assert (account.declared, account.grace_until) == (0, at(690))
    watched.folded_to(at(691))
    assert scan(watched.archive.platform, at(691)).expired == 1


def test_a_restart_after_a_gap_begins_with_a_grace_and_a_short_absence_does_not(
    watched: Watched,
) -> None:
    watched.active(1, at(500))
    watched.awaiting_ack(1, at(500), first=10)
    watched.watched_at(NOW - GAP - MICROSECOND)
    watched.folded_to(NOW)
    assert scan(watched.archive.platform, NOW, dry_run=True).in_grace == 2
    assert scan(watched.archive.platform, NOW).grace_until == NOW + GRACE
    watched.watched_at(NOW - GAP)
    assert scan(watched.archive.platform, NOW).declared == 2


def test_whoever_looks_keeps_the_watch(watched: Watched) -> None:
    watched.active(1, at(500))
    for seconds in range(600, 691, 30):
        watched.folded_to(at(seconds))
        assert not note_watch(watched.archive.platform, at(seconds))
    watched.folded_to(at(691))
    assert note_watch(watched.archive.platform, at(691))
    assert scan(watched.archive.platform, at(691)).expired == 1


def test_a_look_with_an_older_clock_does_not_set_the_watch_back(watched: Watched) -> None:
    watched.active(1, at(500))
    watched.watched_at(NOW)
    watched.folded_to(NOW + GAP)
    assert note_watch(watched.archive.platform, NOW - SECOND)
    assert scan(watched.archive.platform, NOW + GAP).expired == 1


def test_a_grace_can_be_switched_off(archive_settings: Settings) -> None:
    with open_watched(with_deadlines(archive_settings, grace_seconds=0)) as watched:
        watched.active(1, at(0))
        watched.folded_to(NOW)
        assert (
            scan(watched.archive.platform, NOW).grace_until is not None
        )  # at its very end it still holds
        watched.folded_to(NOW + GAP)
        assert scan(watched.archive.platform, NOW + GAP).expired == 1


def test_an_acknowledgement_is_not_late_for_a_request_that_could_not_be_published(
    watched: Watched,
) -> None:
    watched.awaiting_ack(5, at(30))
    watched.request_acks()
    account = watched.scan(NOW)
    assert (account.ack_timed_out, account.unpublished) == (0, 5)
    watched.publish_requests(at(590))
    assert watched.scan(NOW).unpublished == 5
    assert watched.scan(at(590) + WINDOW).unpublished == 5  # a full window, and then strictly later
    assert watched.scan(at(590.001) + WINDOW).ack_timed_out == 5


def test_a_request_that_was_published_at_once_is_judged_by_its_deadline(watched: Watched) -> None:
    watched.awaiting_ack(1, at(595))
    watched.request_acks()
    watched.publish_requests(at(560))
    assert watched.scan(at(595)).overdue == 0
    assert watched.scan(NOW).ack_timed_out == 1


def test_a_new_request_of_a_node_that_was_asked_before_counts_from_its_own_publication(
    watched: Watched,
) -> None:
    watched.awaiting_ack(1, at(595))
    watched.request_acks()
    watched.publish_requests(at(0))
    watched.request_acks()
    assert watched.scan(NOW).unpublished == 1
    watched.publish_requests(at(599))
    assert watched.scan(NOW).unpublished == 1
    assert watched.scan(at(630)).ack_timed_out == 1


def test_the_requests_of_another_registry_are_judged_by_the_deadline_alone(
    watched: Watched,
) -> None:
    watched.awaiting_ack(1, at(599))
    assert watched.scan(NOW).ack_timed_out == 1


def _tick(moment: datetime) -> datetime:
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)
