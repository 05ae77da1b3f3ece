"""What waits for a run: records in the topics, facts in the inbox, events that are not folded."""

from __future__ import annotations

from dataclasses import dataclass

from onex_platform.context import PlatformContext
from onex_platform.ingest.inbox import count_waiting
from onex_platform.ingest.inputs import input_ids, input_topics, next_offsets
from onex_platform.ingest.lag import unarchived_events
from onex_platform.migration.present import platform_now
from onex_platform.projections.checks import unfolded


@dataclass(frozen=True, slots=True)
class Backlog:
    """Work for one run of the pipeline."""

    records: int
    facts: int
    events: int

    def __bool__(self) -> bool:
        return bool(self.records or self.facts or self.events)

    def __str__(self) -> str:
        return (
            f"{self.records} records and {self.facts} facts wait for the log, "
            f"{self.events} events for the fold."
        )


def measure_backlog(platform: PlatformContext) -> Backlog:
    """What waits now; asks for offsets and counts only."""
    platform = platform_now(platform)
    with platform.database.transaction() as cursor:
        facts = count_waiting(cursor, platform.domain)
    return Backlog(
        records=unarchived_events(
            platform.settings,
            input_topics(platform.catalogue),
            next_offsets(platform),
            input_ids(platform).made_anew,
        ),
        facts=facts,
        events=unfolded(platform).events,
    )
