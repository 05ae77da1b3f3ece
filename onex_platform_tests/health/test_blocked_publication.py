"""A publication that is blocked raises an alert; when it goes through again, the alert is over."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from onex_platform.base.errors import InfraError
from onex_platform.health.alerting import alerts
from onex_platform.health.thresholds import EnumLevel, Reading
from onex_platform.health.watching import look_after
from onex_platform.ingest.archive import PageArchive
from onex_platform.snapshots.publish.publish_times import (
    forget_times,
    note_published,
    publication_times,
)
from onex_platform.snapshots.publish.relay import open_relay
from onex_platform_tests.support.snapshot_registry import Registry

pytestmark = pytest.mark.servers

RULE = ("failing_publishing", "snapshots")


def test_an_alert_is_raised_by_what_the_relay_noted_and_ends_by_it(
    archive: PageArchive, registry: Registry
) -> None:
    began = datetime.now(UTC)

    def look(minutes: float) -> tuple[Reading, list[str | None]]:
        """The number that the alert is about, and what was told of it so far."""
        found = look_after(archive.platform, archive.log, began + timedelta(minutes=minutes))
        with archive.database.transaction() as cursor:
            known = alerts(cursor, archive.domain, 100)
        number = found.measurement.by_name["publish_success_percent", "snapshots"]
        # Others use this broker, too: it may be late for them.
        return number, [alert.told for alert in known if (alert.rule, alert.scope) == RULE]

    registry.change(1)
    limits = {"bootstrap_servers": "127.0.0.1:1", "request_timeout_seconds": 1}
    kafka = registry.settings.kafka.model_copy(update=limits)
    nowhere = registry.settings.model_copy(update={"kafka": kafka})
    with open_relay(nowhere, registry.catalogue, registry.config) as relay:
        with pytest.raises(InfraError):
            relay.publish_pending()
        assert relay.waiting().rows == 1
    number, told = look(0)
    assert (number.value, number.level, told) == (0, EnumLevel.WARNING, ["warning"])

    registry.change(*range(300))
    with registry.relay() as relay:
        assert relay.publish_pending().snapshots == 300
    looks = [look(minutes) for minutes in (0.5, 1.5, 2.5)]
    assert all(99 < number.value < 100 for number, _ in looks)
    assert [told for _, told in looks] == [["warning"], ["warning"], ["resolved"]]


def test_times_add_up_by_class_and_are_forgotten_by_age(archive: PageArchive) -> None:
    domain, now = archive.domain, datetime.now(UTC)
    with archive.database.transaction() as cursor:
        for entries, seconds in ((2, 0.004), (3, 0.005), (1, 0.150), (0, 1)):
            note_published(cursor, domain, "events", entries, seconds)
        found = publication_times(cursor, domain, now)
        assert {what: dict(times.classes) for what, times in found.items()} == {
            "events": {5: 5, 200: 1}
        }
        forget_times(cursor, domain, now + timedelta(minutes=2))
        assert publication_times(cursor, domain, now) == {}
