"""How many dead letters there are, how old they are, and whether somebody looks after them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from onex_platform.checks import Number, Verdict
from onex_platform.engines.postgres.database import Cursor
from onex_platform.topics.catalogue import Catalogue
from onex_platform.topics.grammar import OnexName, StreamName
from onex_platform.topics.policy import Policy


class LetterCounts(NamedTuple):
    """The letters of one topic that were parked for one reason, by what became of them."""

    topic: str
    reason: str
    waiting: int
    submitted: int
    entered: int
    duplicate: int
    purged: int
    unpublished: int
    oldest_waiting: datetime | None

    @property
    def reprocessed(self) -> int:
        return self.entered + self.duplicate


class ContextReport(NamedTuple):
    """The letters of one context, whose team has promised to look at them in time."""

    context: str
    waiting: int
    reprocessed: int
    purged: int
    oldest_waiting: timedelta | None
    look_within: timedelta

    @property
    def is_late(self) -> bool:
        return self.oldest_waiting is not None and self.oldest_waiting > self.look_within


def count_letters(cursor: Cursor, domain: str) -> list[LetterCounts]:
    """All letters, by topic and reason."""
    rows = cursor.execute(
        "SELECT topic, reason, count(*) FILTER (WHERE outcome IS NULL) AS waiting,"
        " count(*) FILTER (WHERE outcome = 'submitted') AS submitted,"
        " count(*) FILTER (WHERE outcome = 'entered') AS entered,"
        " count(*) FILTER (WHERE outcome = 'duplicate') AS duplicate,"
        " count(*) FILTER (WHERE outcome = 'purged') AS purged,"
        " count(*) FILTER (WHERE published_at IS NULL AND outcome IS DISTINCT FROM 'purged')"
        " AS unpublished,"
        " min(parked_at) FILTER (WHERE outcome IS NULL) AS oldest_waiting"
        " FROM parked_records WHERE domain = %s GROUP BY topic, reason ORDER BY topic, reason",
        [domain],
    )
    return [LetterCounts(*row) for row in rows]


def parked_since(cursor: Cursor, domain: str, moment: datetime) -> dict[str, int]:
    """How many records were parked from this moment on, by topic."""
    rows = cursor.execute(
        "SELECT topic, count(*) AS records FROM parked_records"
        " WHERE domain = %s AND parked_at >= %s GROUP BY topic",
        [domain, moment],
    )
    return {row.topic: row.records for row in rows}


def report(
    counts: Sequence[LetterCounts], catalogue: Catalogue, policy: Policy, now: datetime
) -> list[ContextReport]:
    """The counts by context, with the time in which its team looks at dead letters."""
    groups: dict[str, list[LetterCounts]] = {}
    for count in counts:
        groups.setdefault(context_of(count.topic, catalogue), []).append(count)
    return [
        ContextReport(
            context=context,
            waiting=sum(count.waiting for count in group),
            reprocessed=sum(count.reprocessed for count in group),
            purged=sum(count.purged for count in group),
            oldest_waiting=max(
                (now - count.oldest_waiting for count in group if count.oldest_waiting),
                default=None,
            ),
            look_within=policy.contexts[context].triage.within,
        )
        for context, group in sorted(groups.items())
    ]


def context_of(topic: str, catalogue: Catalogue) -> str:
    """Whose dead letters a topic's are: its domain's, also under a legacy name, or its context's.

    A topic that has no contract any more is the platform's own affair.
    """
    name = catalogue.canonical(topic).name if topic in catalogue else None
    if isinstance(name, StreamName):
        return name.context
    return name.domain if isinstance(name, OnexName) else "platform"


def letters_are_looked_after(reports: Sequence[ContextReport]) -> Verdict:
    """Whether no letter waits longer than its context's team has promised to look at it."""
    late = [item for item in reports if item.is_late]
    numbers: dict[str, Number] = {
        "waiting": sum(item.waiting for item in reports),
        "reprocessed": sum(item.reprocessed for item in reports),
        "purged": sum(item.purged for item in reports),
        "late contexts": len(late),
    }
    if not late:
        return Verdict(True, "No dead letter waits longer than it may.", numbers)
    told = " ".join(
        f"{item.waiting} letters of {item.context} wait, the oldest for {item.oldest_waiting};"
        f" somebody looks within {item.look_within}."
        for item in late
    )
    return Verdict(
        False,
        f"{told} `onex dlt list` shows the log's, `onex delivery list` those of a handler.",
        numbers,
    )


def letter_numbers(counts: Sequence[LetterCounts]) -> Mapping[str, Number]:
    """The counts as metadata: in all, and what waits by reason."""
    reasons: dict[str, Number] = {}
    for count in counts:
        name = f"waiting: {count.reason}"
        reasons[name] = int(reasons.get(name, 0)) + count.waiting
    totals = ("waiting", "submitted", "entered", "duplicate", "purged", "unpublished")
    return {name: sum(getattr(count, name) for count in counts) for name in totals} | {
        name: value for name, value in reasons.items() if value
    }
