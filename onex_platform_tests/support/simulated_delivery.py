"""A broker in memory and owners of one partition on it, to try lanes in every order of events.

What a process has sent may land late, or never; a deposed owner goes on for a while, and may commit
nothing. Entries travel as headers, as they do on a real broker.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from onex_platform.delivery.config import Limits
from onex_platform.delivery.entries import (
    Entry,
    EnumEntry,
    EnumFailure,
    Headers,
    Key,
    Record,
    decode,
    encode,
    key_of,
)
from onex_platform.delivery.lane import Lane
from onex_platform.delivery.letters import letters_of, request_of
from onex_platform.delivery.work import Attempt, Bury, Failure, Letters, Revive

TIERS = (60_000, 900_000, 7_200_000)
GROUP = "group"
Stored = tuple[bytes | None, bytes | None, Headers, int]

# Of a record and the time: None if it is handled, else why not.
Handler = Callable[[Record, int], Failure | None]


@dataclass
class Broker:
    """The three partitions, the groups' committed offsets, and the time in Unix ms."""

    source: list[Record] = field(default_factory=list)
    retry: list[Stored] = field(default_factory=list)
    letters: list[Stored] = field(default_factory=list)
    committed: dict[str, tuple[int, int]] = field(default_factory=dict)
    claims: dict[str, str] = field(default_factory=dict)  # the last one of each group
    now: int = 1_700_000_000_000
    takes_letters: bool = True
    letters_deleted: int = 0  # from the beginning, by retention
    # Per group and key, in the order of time; not what an owner does whose claim is superseded.
    handled: dict[str, dict[Key, list[int]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )

    def produce(self, key: bytes | None) -> None:
        offset = len(self.source)
        value = b"%d" % offset
        self.source.append(
            Record(key, value, (("x-delivery", b"theirs"),), "source", 0, offset, self.now)
        )

    def store(self, topic: list[Stored], entry: Entry, group: str) -> int:
        key = entry.key if isinstance(entry.key, bytes) else None
        value = None if entry.record is None else entry.record.value
        topic.append((key, value, encode(entry, group), self.now))
        if entry.kind is EnumEntry.CLAIM:
            self.claims[group] = entry.claim
        return len(topic) - 1


class Owner:
    """A process that owns the partition, for one group."""

    def __init__(self, broker: Broker, group: str, handler: Handler, claim: str) -> None:
        self.broker = broker
        self.group = group
        self.lane = Lane(Limits(TIERS, carry_entries=20), claim)
        self.may_commit = True
        self.attempts: list[tuple[int, int]] = []  # when, and the source's offset
        self._claim = claim
        self._handler = handler
        self._source, self._retry = broker.committed.get(group, (0, 0))
        self._sent: list[Entry] = []

    def land(self, most: int) -> None:
        """Let the broker take what was sent."""
        self._sent += self.lane.take_outbox()
        for entry in self._sent[:most]:
            self.broker.store(self.broker.retry, entry, self.group)
        del self._sent[:most]

    def refuse(self) -> None:
        """Let the broker refuse everything that was sent."""
        self._sent += self.lane.take_outbox()
        for entry in self._sent:
            self.lane.refused(entry.number, "it is away")
        self._sent.clear()

    def refuse_first(self) -> None:
        """Let the broker refuse one entry, and keep what was sent behind it."""
        self._sent += self.lane.take_outbox()
        if self._sent:
            self.lane.refused(self._sent.pop(0).number, "it was away for a moment")

    def read(self, most: int) -> None:
        for key, value, headers, written in self.broker.retry[self._retry : self._retry + most]:
            entry = decode(key, value, headers, self.group)
            self.lane.read(entry, self._retry, written, self.broker.now)
            self._retry += 1

    def seek_retry(self, offset: int) -> None:
        """Read `rty` from there, as a client does whose offset the broker no longer has."""
        self._retry = offset

    def take(self, most: int) -> None:
        """Go on with the source."""
        for record in self.broker.source[self._source : self._source + most]:
            if not self.lane.takes_more:
                return
            key = key_of(record.key, record.offset)
            if key in self.lane.keys:
                self.lane.follow(key, record, self.broker.now)
            elif self.lane.has_handled(key, record.offset):
                pass  # not a second time
            elif failure := self._handle(record):
                self.lane.failed(key, record, failure, self.broker.now)
            self._source = self.lane.source = record.offset + 1

    def work(self, most: int = 100) -> None:
        """Do what is due."""
        now = self.broker.now
        for work in self.lane.take_due(now, most):
            match work:
                case Attempt(key, entry):
                    assert entry.record is not None
                    assert entry.record == self.broker.source[entry.offset]
                    if failure := self._handle(entry.record):
                        self.lane.failed_again(key, failure, now)
                    else:
                        self.lane.succeeded(key, now)
                case Bury(key, entries) if self.broker.takes_letters:
                    letters = self.broker.letters
                    places = [self.broker.store(letters, one, self.group) for one in entries]
                    self.lane.buried(key, entries, places[0])
                case Bury(key):
                    self.lane.not_buried(key, "it is away", now)
                case Revive(key, dead):
                    self.lane.revive(key, self._letters(dead), now)
        self.lane.tend(now)

    def commit(self) -> None:
        found = self.lane.commits()
        if found is not None and self.may_commit:
            source, retry = found
            before = self.broker.committed.get(self.group, (0, 0))
            self.broker.committed[self.group] = before[0] if source is None else source, retry

    def settle(self) -> None:
        """Everything that can be done now, with nothing in the way."""
        for _ in range(20):
            self.lane.write_again()
            self.land(10_000)
            self.read(10_000)
            self.take(10_000)
            self.work()
        self.commit()

    def _handle(self, record: Record) -> Failure | None:
        self.attempts.append((self.broker.now, record.offset))
        failure = self._handler(record, self.broker.now)
        if failure is None and self.broker.claims[self.group] == self._claim:
            self.broker.handled[self.group][key_of(record.key, record.offset)].append(record.offset)
        return failure

    def _letters(self, dead: Entry) -> Letters:
        begin = max(dead.letter, self.broker.letters_deleted)
        stored = enumerate(self.broker.letters[begin:], begin)
        return letters_of(dead, ((place, decode(*one[:3], self.group)) for place, one in stored))


def ask(owner: Owner, key: Key, kind: EnumEntry = EnumEntry.REPLAY) -> Entry:
    """What an operator writes of a dead key."""
    dead = owner.lane.keys[key].dead
    assert dead is not None
    request = request_of(kind, dead.entry)
    owner.broker.store(owner.broker.retry, request, owner.group)
    return request


TRANSIENT = Failure(EnumFailure.TRANSIENT, "not now")
PERMANENT = Failure(EnumFailure.PERMANENT, "never")


class Poison:
    """Fails for some keys until it is mended."""

    def __init__(self, failures: dict[bytes, Failure]) -> None:
        self.failures = failures

    def __call__(self, record: Record, _now: int) -> Failure | None:
        return self.failures.get(record.key or b"")


def filled(*keys: bytes) -> Broker:
    """A source with a record of each key."""
    broker = Broker()
    for key in keys:
        broker.produce(key)
    return broker


def settled(broker: Broker, poison: Poison, claim: str = "first") -> Owner:
    """An owner that has done what it can."""
    owner = Owner(broker, GROUP, poison, claim)
    owner.settle()
    return owner
