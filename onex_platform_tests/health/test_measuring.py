"""The service is measured on real servers, and its numbers are published by their contract."""

from __future__ import annotations

from functools import partial

import pytest

from onex_platform.engines.kafka.clients import end_positions, read_to_end
from onex_platform.health.measuring import measure
from onex_platform.health.met_events import SERVICE_HEALTH, publish_measurement, values_of
from onex_platform.health.thresholds import METRICS
from onex_platform.migration.publication import published
from onex_platform.topics.catalogue import load_whole_catalogue
from onex_platform_tests.support.events import at
from onex_platform_tests.support.measured import Killed, die_at, measured
from onex_platform_tests.support.met_topics import decoded, make_topics
from onex_platform_tests.support.watched_clock import Watched

pytestmark = pytest.mark.servers


def test_every_source_answers_on_a_quiet_platform(piped: Watched) -> None:
    archive = piped.archive
    found = measure(archive.platform, archive.log, at(0))
    assert [item.value for item in found.readings if item.metric == "unanswered"] == [0] * 7
    assert len(set(found.by_name)) == len(found.readings)
    assert {item.metric for item in found.readings} <= METRICS.keys()


@pytest.mark.parametrize(("moment", "times"), [("before", 1), ("after", 2)])
def test_numbers_are_published_as_the_contract_says(
    piped: Watched, moment: str, times: int
) -> None:
    settings = piped.archive.settings
    written = partial(published, piped.archive.database, load_whole_catalogue())
    [topic] = make_topics(settings, [SERVICE_HEALTH])
    before = end_positions(settings, [topic])
    measurement = measured(0, event_queue_depth=2000, lag_seconds__here=7.5)
    die_at(f"{moment}:health.report")
    with pytest.raises(Killed):
        publish_measurement(settings, written, measurement)
    assert publish_measurement(settings, written, measurement) == 2
    messages = list(read_to_end(settings, [topic], before))
    assert len(messages) == 2 * times
    assert len({dict(message.headers() or [])["ce_id"] for message in messages}) == 2
    values = {m.key(): decoded(SERVICE_HEALTH, m.value() or b"") for m in messages}
    assert values == {v["reading_name"].encode(): v for v in values_of(measurement)}
    assert values[b"event_queue_depth events"]["level"] == "warning"
