"""One partition of a source with its partition of `rty`, for one group: which keys wait, what is
due, how far positions may be committed. Pure: events come in, entries and work go out.

What holds, whoever is killed at whatever moment:
- The state is a fold of the entries in `rty` from the committed offset on. A lane begins with a
  claim, and with nothing else until it has read its own claim back.
- An entry counts when it has been read back. Entries of a writer whose claim is not the last one
  are void, for everybody: the log's order says who owns the partition, not a clock. A writer's
  entries are numbered, and one behind a gap is void as well: it is written again.
- The source's committed offset never passes a record whose entry has not been read back, nor one
  that was handled after such an entry was written. So after a crash a key is handled again from
  some record on, in order; never an early record behind a late one.
- The committed offset in `rty` never passes the batch of an entry that still counts, and is never
  inside a batch. An entry that lies far behind is carried: written again at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from itertools import count

from onex_platform.delivery.config import Limits
from onex_platform.delivery.entries import (
    Attempts,
    Entry,
    EnumEntry,
    EnumFailure,
    Key,
    Record,
    shown,
)
from onex_platform.delivery.journal import Journal
from onex_platform.delivery.tiers import after_failure, is_given_up
from onex_platform.delivery.waiting import Kept, KeyState
from onex_platform.delivery.work import Alert, Attempt, Bury, Failure, Letters, Revive, Work

_REQUESTS = (EnumEntry.REPLAY, EnumEntry.RELEASE)
# Where much counts, entries are carried before there are so many others for each of them.
_SLACK = 4


class Lane:
    """The rules of one partition; made anew at each assignment."""

    def __init__(self, limits: Limits, claim: str) -> None:
        self.keys: dict[Key, KeyState] = {}
        self.source: int | None = None  # every record before it is handled or in an entry
        self.position = 0  # of the next entry to read
        self.waiting = 0  # records
        self.deposed = False
        self.alerts: list[Alert] = []
        self._limits = limits
        self._claim = claim
        self._bytes = 0
        self._epoch = -1  # the last claim in `rty`, by its offset
        self.mine: int | None = None  # the same, once it is ours
        self._number: int | None = None  # of its next entry; None while the first is not read
        self._start = 0  # the last place where a reader may begin
        self._journal = Journal()
        self._schedule: list[tuple[int, int, Key]] = []
        self._ties = count()
        self._told: set[str] = set()
        self._append(Entry(EnumEntry.CLAIM, b"", claim=claim))

    # How it stands

    @property
    def is_open(self) -> bool:
        """Whether it knows what waits, and may write."""
        return self.mine is not None and not self._journal.is_refused and not self.deposed

    @property
    def is_full(self) -> bool:
        return (
            self.waiting >= self._limits.waiting_records
            or self._bytes >= self._limits.waiting_bytes
        )

    @property
    def takes_more(self) -> bool:
        """Whether records of the source may be handled."""
        return self.is_open and not self.is_full

    def commits(self) -> tuple[int | None, int] | None:
        """How far the source and `rty` may be committed; None: nothing may."""
        if not self.is_open:
            return None
        source = self._journal.committable(self.source)
        end = self._start if self._journal.is_sending else self.position
        return source, min([end, *self._places()])

    def next_due(self) -> int | None:
        """When there may be work; None while nothing waits, or nothing may be done."""
        return self._schedule[0][0] if self._schedule and self.is_open else None

    # Records of the source

    def failed(self, key: Key, record: Record, failure: Failure, now: int) -> None:
        """A record of a key that did not wait could not be handled."""
        self._wait(key, record, after_failure(self._limits.tiers, 1, failure, now, now), now)

    def has_handled(self, key: Key, offset: int) -> bool:
        """Whether the source brings a record again whose end is written, and not yet read back."""
        return self._journal.has_done(key, offset)

    def follow(self, key: Key, record: Record, now: int) -> None:
        """A record of a key that waits or is dead goes behind the others."""
        if record.offset > self.keys[key].last:  # else an earlier owner has seen to it
            self._wait(key, record, Attempts(0, now, now, now, EnumFailure.FOLLOWER), now)

    def _wait(self, key: Key, record: Record, attempts: Attempts, now: int) -> None:
        state = self.keys.setdefault(key, KeyState())
        kept = Kept(Entry(EnumEntry.WAIT, key, record.offset, record, attempts))
        self._insert(state, kept)
        self._journal.append(kept.entry, record.offset, kept)
        self._arrange(key, state, now)
        if self.is_full:
            self._tell(
                "too_many_waiting",
                f"{self.waiting} records with {self._bytes} bytes wait; the source pauses.",
            )

    # What is due

    def take_due(self, now: int, most: int) -> Iterator[Work]:
        """Work that is due, oldest first; its outcome is told before the next is taken."""
        for _ in range(most):
            if not self.is_open or not self._schedule or self._schedule[0][0] > now:
                return
            due, _, key = heappop(self._schedule)
            state = self.keys.get(key)
            if state is None or state.busy or state.due != due:
                continue  # it was arranged anew since
            state.due = None
            if work := self._work(key, state):
                yield work

    def _work(self, key: Key, state: KeyState) -> Work | None:
        if state.request is None and state.dead is None:
            first = state.queue[0].entry
            if not is_given_up(self._limits.tiers, first.attempts):
                return Attempt(key, first)
        state.busy = True
        if state.request is not None and state.dead is not None:
            if state.request.kind is EnumEntry.REPLAY:
                return Revive(key, state.dead.entry)
            self._mark(key, EnumEntry.ALIVE)
            return None
        return Bury(key, tuple(kept.entry for kept in state.queue))

    def succeeded(self, key: Key, now: int) -> None:
        """The handler took the first record of the key."""
        state = self.keys[key]
        kept = state.queue[0]
        offset = kept.entry.offset
        self._drop(state, offset)
        self._append(Entry(EnumEntry.DONE, key, offset), kept)
        self._arrange(key, state, now)

    def failed_again(self, key: Key, failure: Failure, now: int) -> None:
        """The handler did not take the first record of the key."""
        state = self.keys[key]
        kept = state.queue[0]
        before = kept.entry.attempts
        attempts = after_failure(
            self._limits.tiers, before.failures + 1, failure, before.first_seen, now
        )
        kept.entry = replace(kept.entry, attempts=attempts)
        self._append(kept.entry, kept)
        self._arrange(key, state, now)

    def postponed(self, key: Key, until: int) -> None:
        """The work could not be done, through no fault of the record's."""
        state = self.keys[key]
        state.busy, state.not_before = False, until
        self._arrange(key, state, until)

    def buried(self, key: Key, entries: Sequence[Entry], letter: int) -> None:
        """The key's records are in `dlt`, the first of them at offset `letter`."""
        state, through = self.keys[key], entries[-1].offset
        death = Entry(EnumEntry.DEAD, key, letter=letter, since=entries[0].offset)
        kept = state.dead or Kept(death)
        kept.entry = replace(kept.entry, offset=max(through, kept.entry.offset))
        state.awaited = self._append(kept.entry, kept)
        self._told.discard("dead_letters_refused")

    def not_buried(self, key: Key, reason: str, now: int) -> None:
        """`dlt` refused: the key stops, and its records stay where they are."""
        self.postponed(key, now + self._limits.refusal_pause)
        self._tell(
            "dead_letters_refused",
            f"Records of key {shown(key)!r} can't become dead letters: {reason}",
        )

    def revive(self, key: Key, letters: Letters, now: int) -> None:
        """The dead key's letters wait again, from their first attempt on; all of them, or none."""
        state = self.keys[key]
        if not letters.is_whole:
            lost = f"Letters of key {shown(key)!r} are gone, so it stays dead until it is released."
            self.alerts.append(Alert("letters_lost", lost))
            self._mark(key, EnumEntry.LOST)
            return
        attempts = Attempts(0, now, now, now, EnumFailure.REPLAYED)
        for record in letters.records:
            if state.find(record.offset) is None:
                kept = Kept(Entry(EnumEntry.WAIT, key, record.offset, record, attempts))
                self._insert(state, kept)
                state.reviving.add(self._append(kept.entry, kept))
        if not state.reviving:
            self._mark(key, EnumEntry.ALIVE)

    # Entries of `rty`

    def read(self, entry: Entry | None, place: int, written: int, now: int) -> None:
        """The next record of `rty`; None if it is not one of this group's."""
        if place < self.position and self.mine is not None:
            self.deposed = True
            self._tell(
                "entries_lost", f"rty was made anew; entries of {len(self.keys)} keys are lost."
            )
        self.position = place + 1
        if entry is None or self.deposed:
            return
        if entry.kind is EnumEntry.CLAIM:
            self._read_claim(entry, place, now)
        elif entry.kind in _REQUESTS:
            self._read_request(entry, now)
        elif self._is_next(entry, place):
            if entry.epoch == self.mine:
                self._read_back(entry.number, written, now)
            else:
                self._fold(entry, written, now)

    def _is_next(self, entry: Entry, place: int) -> bool:
        """Whether an entry counts: its writer owns the log, and none is missing before it.

        What was sent behind a refused entry may have been taken; it is sent again behind it.
        """
        if not self._epoch <= entry.epoch < place:
            return False
        is_known = entry.epoch == self._epoch and self._number is not None
        if entry.number != self._number if is_known else not entry.leads:
            return False
        self._epoch, self._number = entry.epoch, entry.number + 1
        if entry.leads:
            self._start = place
        return True

    def _read_claim(self, entry: Entry, place: int, now: int) -> None:
        self._epoch, self._number, self._start = place, entry.number + 1, place
        if entry.claim != self._claim:
            self.deposed = self.mine is not None
            return
        self.mine = place
        self._read_back(entry.number, 0, now)
        for key, state in list(self.keys.items()):
            if state.request is not None and not state.concerns(state.request):
                state.request = None
            self._arrange(key, state, now)

    def _read_request(self, entry: Entry, now: int) -> None:
        state = self.keys.get(entry.key)
        if self.mine is None:
            # The mark of the death that it is about may come behind it.
            state = self.keys.setdefault(entry.key, KeyState())
        elif state is None or not state.concerns(entry):
            return
        state.request, state.request_place = entry, self._start
        if self.mine is not None:
            self._arrange(entry.key, state, now)

    def _read_back(self, number: int, written: int, now: int) -> None:
        found = self._journal.read_back(number)
        if found is None:
            return
        if not self._journal.is_refused:
            self._told.discard("retry_refused")
        key, kept = found.entry.key, found.kept
        if kept is not None:
            kept.place, kept.written = self._start, written
        state = self.keys.get(key)
        if state is None:
            return
        if number in state.reviving:
            state.reviving.discard(number)
            if not state.reviving:
                self._mark(key, EnumEntry.ALIVE)
        if number == state.awaited:
            state.busy = False
            self._change(state, found.entry, kept)
            self._arrange(key, state, now)

    def _fold(self, entry: Entry, written: int, now: int) -> None:
        """An entry of an earlier owner; nothing is done about it before the lane is open."""
        state = self.keys.setdefault(entry.key, KeyState())
        if entry.kind is EnumEntry.WAIT:
            capped = min(entry.attempts.due, now + self._limits.tiers[-1])
            entry = replace(entry, attempts=entry.attempts._replace(due=capped))
            kept = state.find(entry.offset)
            if kept is None:
                self._insert(state, Kept(entry, self._start, written))
            else:
                kept.entry, kept.place, kept.written = entry, self._start, written
        else:
            self._change(state, entry, Kept(entry, self._start, written))
        if state.is_over:
            del self.keys[entry.key]

    def _change(self, state: KeyState, entry: Entry, kept: Kept | None) -> None:
        """What an entry without a record says of its key."""
        if entry.kind is EnumEntry.ALIVE:
            state.dead, state.request = None, None
        elif entry.kind is EnumEntry.LOST:
            state.forget_replay()
        else:
            if entry.kind is EnumEntry.DEAD:
                state.dead = kept
            self._drop(state, entry.offset)

    # Writing

    def take_outbox(self) -> list[Entry]:
        """Entries to write now, in this order."""
        return self._journal.take(self.mine)

    def refused(self, number: int, reason: str) -> None:
        """`rty` did not take an entry: the lane stops until it does."""
        if self._journal.refuse(number):
            self._tell("retry_refused", f"rty takes no entries, so its partition pauses: {reason}")

    def write_again(self) -> None:
        """Try what was refused once more."""
        self._journal.write_again()

    def tend(self, now: int) -> None:
        """Carry what lies far behind, so that a restart reads little and `rty` deletes nothing."""
        if not self.is_open:
            return
        if not self.is_full:
            self._told.discard("too_many_waiting")
        counting = self.waiting + len(self.keys)
        behind = self.position - max(self._limits.carry_entries, _SLACK * counting)
        before = now - self._limits.carry_after
        on_the_way = self._journal.on_the_way()
        for state in self.keys.values():
            for kept in state.counting():
                if kept is state.dead and state.request is not None:
                    continue  # behind letters that wait again, it would make them letters
                if kept.place is None or id(kept) in on_the_way:
                    continue
                if kept.place < behind or kept.written < before:
                    self._append(kept.entry, kept)

    def _mark(self, key: Key, kind: EnumEntry) -> None:
        """Write what became of a request; it has become so when that is read back."""
        mark = Entry(kind, key, key if isinstance(key, int) else -1)
        self.keys[key].awaited = self._append(mark)

    def _append(self, entry: Entry, kept: Kept | None = None) -> int:
        return self._journal.append(entry, self.source, kept)

    # Queues and times

    def _arrange(self, key: Key, state: KeyState, now: int) -> None:
        """Note when there is something to do for the key, or forget it."""
        if state.is_over:
            del self.keys[key]
            return
        before, state.due = state.due, state.next_due(now)
        if state.due is not None and state.due != before:
            heappush(self._schedule, (state.due, next(self._ties), key))

    def _insert(self, state: KeyState, kept: Kept) -> None:
        state.insert(kept)
        self.waiting += 1
        self._bytes += kept.size

    def _drop(self, state: KeyState, through: int) -> None:
        for kept in state.drop(through):
            self.waiting -= 1
            self._bytes -= kept.size

    def _places(self) -> Iterator[int]:
        """Where `rty` has everything that still counts.

        So does a record that was handled, until that is read back: a restart must not find a part
        of what it would undo.
        """
        yield from self._journal.places()
        for state in self.keys.values():
            yield from (kept.place for kept in state.counting() if kept.place is not None)
            if state.request is not None:
                yield state.request_place

    def _tell(self, name: str, message: str) -> None:
        if name not in self._told:
            self._told.add(name)
            self.alerts.append(Alert(name, message))
