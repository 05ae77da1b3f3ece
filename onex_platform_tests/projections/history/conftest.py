"""A log of some hours, whose states are to be written."""

from __future__ import annotations

from datetime import timedelta

import pytest

from onex_platform.domain.events import LogEvent
from onex_platform.ingest.archive import PageArchive
from onex_platform.simulate.fleet import Fleet
from onex_platform.simulate.plan import FleetPlan
from onex_platform_tests.support.folded_logs import enter_folded_log, place
from onex_platform_tests.support.played_records import read_fleet, routes


@pytest.fixture
def log(archive: PageArchive) -> list[LogEvent]:
    """Some hours of a fleet, in the archive and folded."""
    plan = FleetPlan(nodes=8, duration=timedelta(hours=5))
    events = sorted(read_fleet(Fleet(plan, routes())).numbered(), key=place)
    enter_folded_log(archive, events, range(0, len(events), 400))
    return events
