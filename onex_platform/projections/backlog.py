"""What waits for a run: records in the topics, facts in the inbox, events that are not folded."""

from __future__ import annotations

from dataclasses import dataclass

from onex_platform.ingest.archive import PageArchive
from onex_platform.ingest.inbox import count_waiting
from onex_platform.ingest.lag import unarchived_events
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


def measure_backlog(archive: PageArchive) -> Backlog:
    """What waits now; asks for offsets and counts only."""
    with archive.database.transaction() as cursor:
        facts = count_waiting(cursor, archive.domain)
    return Backlog(
        records=unarchived_events(
            archive.settings,
            archive.input_topics(),
            archive.cuts.cursors(),
            archive.topic_ids().made_anew,
        ),
        facts=facts,
        events=unfolded(archive).events,
    )
