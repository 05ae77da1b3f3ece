"""Replaying dead letters: kept bytes are read under today's rules and wait for the next cut.

What holds, wherever it is stopped:
- A letter that can be read now enters the inbox and is noted as submitted in one transaction. The
  next cut gives it a place at the log's end, as it does with every late record, and notes that in
  the transaction that commits the cut. So nothing is replayed twice, and nothing is lost.
- An event whose id is in the log, or waits for it, is a duplicate, and does not enter again.
- An event from before the ledger's memory is refused: it may be a duplicate.
- A letter that still can't be read stays as it is.
- A preview judges by the same function and writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from onex_platform.base.faults import effect
from onex_platform.context import PlatformContext
from onex_platform.domain.envelope import EnumParkReason
from onex_platform.domain.events import LogEvent
from onex_platform.domain.intake import IntakeRules, Parked, admit, is_ledgered
from onex_platform.engines.postgres.database import Cursor
from onex_platform.ingest import inbox
from onex_platform.ingest.admission.fast_path import InputTopic
from onex_platform.ingest.deduplication import recall
from onex_platform.ingest.inputs import input_topics, intake_rules, signers_of
from onex_platform.ingest.letters.parked_letters import (
    EnumLetterState,
    Letter,
    LetterFilter,
    LetterId,
    find_letters,
    submit_letters,
)

_AT_ONCE = 100  # letters, which may be large


class EnumReplayVerdict(StrEnum):
    """What replaying a letter comes to."""

    ENTERS = "enters"
    DUPLICATE = "duplicate"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Judged:
    """A letter as it is read today: an event, or the reason why it still is none."""

    id: LetterId
    parked_for: str
    read: LogEvent | Parked
    verdict: EnumReplayVerdict

    @property
    def event_id(self) -> UUID | None:
        return self.read.event_id if isinstance(self.read, LogEvent) else None

    @property
    def reason(self) -> str | None:
        return self.read.reason.value if isinstance(self.read, Parked) else None

    @property
    def detail(self) -> str | None:
        return self.read.detail if isinstance(self.read, Parked) else None


def preview(platform: PlatformContext, wanted: LetterFilter, now: datetime) -> Iterator[Judged]:
    """What `replay` would come to; nothing is written."""
    return _each(platform, wanted, now, by=None)


def replay(
    platform: PlatformContext, wanted: LetterFilter, now: datetime, *, by: str
) -> Iterator[Judged]:
    """Submit the letters that can be read, batch by batch, as they are asked for.

    What has been replayed is not waiting any more, so replaying it again does nothing.
    """
    return _each(platform, wanted, now, by=by)


def _each(
    platform: PlatformContext, wanted: LetterFilter, now: datetime, by: str | None
) -> Iterator[Judged]:
    wanted = replace(wanted, state=EnumLetterState.WAITING)
    after: LetterId | None = None
    seen: set[UUID] = set()
    while True:
        marked = nullcontext() if by is None else effect("letters.submit")
        with marked, platform.database.transaction() as cursor:
            letters = find_letters(
                cursor,
                platform.domain,
                wanted,
                now,
                limit=_AT_ONCE,
                after=after,
                lock=by is not None,
            )
            judged = _judged(cursor, platform, letters, now, seen)
            if by is not None:
                _submit(cursor, platform.domain, judged, by)
        yield from judged
        if len(letters) < _AT_ONCE:
            return
        after = letters[-1].id


def _judged(
    cursor: Cursor,
    platform: PlatformContext,
    letters: Sequence[Letter],
    now: datetime,
    seen: set[UUID],
) -> list[Judged]:
    """The letters as today's rules read them; `seen` are the ids of letters before, and grows."""
    topics, floor = input_topics(platform.catalogue), recall(cursor, platform.domain).floor
    signers = signers_of(platform.settings, platform.catalogue)
    while True:
        rules = intake_rules(platform.settings, floor, signers)
        read = [read_again(letter, topics, rules, now) for letter in letters]
        events = [item for item in read if isinstance(item, LogEvent)]
        known = recall(
            cursor, platform.domain, [item.event_id for item in events if is_ledgered(item.kind)]
        )
        if known.floor == floor:
            break
        floor = known.floor  # the ledger was pruned meanwhile: ids may be forgotten
    waiting = inbox.waiting_among(cursor, platform.domain, [item.event_id for item in events])
    seen |= known.known | waiting
    return judge(letters, read, seen)


def read_again(
    letter: Letter, topics: Mapping[str, InputTopic], rules: IntakeRules, now: datetime
) -> LogEvent | Parked:
    """A letter under today's rules: what its topic carries is what the catalogue says by now."""
    record = letter.as_record()
    topic = topics.get(record.topic)
    if topic is None:
        why = "its topic has no contract any more, so nobody can say what it asks for"
        return Parked(record, EnumParkReason(letter.reason), why)
    asked = replace(record, kind=topic.kind, legacy=topic.legacy, asked=topic.asked)
    return admit(asked, rules, now)


def judge(
    letters: Sequence[Letter], read: Sequence[LogEvent | Parked], seen: set[UUID]
) -> list[Judged]:
    """Of each id the first letter enters, if it was not seen before; `seen` grows by them."""
    judged = []
    for letter, item in zip(letters, read, strict=True):
        verdict = EnumReplayVerdict.UNREADABLE
        if isinstance(item, LogEvent):
            is_known = item.event_id in seen
            verdict = EnumReplayVerdict.DUPLICATE if is_known else EnumReplayVerdict.ENTERS
            seen.add(item.event_id)
        judged.append(Judged(letter.id, letter.reason, item, verdict))
    return judged


def _submit(cursor: Cursor, domain: str, judged: Sequence[Judged], by: str) -> None:
    entering, settled = [], []
    for item in judged:
        if isinstance(item.read, LogEvent):
            state = EnumLetterState.DUPLICATE
            if item.verdict is EnumReplayVerdict.ENTERS:
                state = EnumLetterState.SUBMITTED
                entering.append(item.read)
            settled.append((item.id, item.read.event_id, state))
    inbox.submit(cursor, entering)
    submit_letters(cursor, domain, settled, by)
