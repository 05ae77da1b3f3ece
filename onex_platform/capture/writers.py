"""Writers: dense sequences, and a bounded memory of ids that makes a retried publish harmless."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import uuid4

from onex_platform.base.errors import OnexError
from onex_platform.capture.api.requests import Publication

MOST_PRODUCERS = 1000  # of one writer

WriterKey = tuple[str, str]
"""Tenant and writer id."""

IdKey = tuple[str, str, str, int]
"""Tenant, writer id, then an event id and -1, or a producer id and its sequence."""


class ConflictError(OnexError):
    """The id is known, for other bytes."""


class SequenceGapError(OnexError):
    """A producer left a number out, or repeats one that is too old to be remembered."""

    def __init__(self, asked: Publication, expected: int) -> None:
        super().__init__(
            f"producer_sequence of {asked.producer_id!r} is {asked.producer_sequence}; "
            f"the expected one is {expected}.",
            hint="Send the events that are missing first.",
        )
        self.expected = expected


class Known(NamedTuple):
    """The first answer to an id."""

    sequence: int
    event_id: str
    digest: bytes
    seen_at: float  # monotonic: a clock that is set forward must not make us forget


class IdMemory:
    """Remembers ids for a time and up to a count, whichever ends first."""

    def __init__(self, max_age_seconds: float, max_count: int) -> None:
        self._max_age = max_age_seconds
        self._max_count = max_count
        self._known: OrderedDict[IdKey, Known] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def find(self, key: IdKey) -> Known | None:
        return self._known.get(key)

    def remember(self, key: IdKey, known: Known) -> None:
        self._known[key] = known

    def forget(self, key: IdKey) -> None:
        self._known.pop(key, None)

    def prune(self, now: float) -> None:
        """Forget what is too old or too much, oldest first."""
        while self._known:
            oldest = next(iter(self._known.values()))
            if len(self._known) <= self._max_count and now - oldest.seen_at <= self._max_age:
                return
            self._known.popitem(last=False)

    def items(self) -> Iterator[tuple[IdKey, Known]]:
        return iter(self._known.items())


@dataclass(slots=True)
class Writer:
    """One writer's numbers. Each watermark says that all up to it are that durable."""

    last_sequence: int = 0  # given, perhaps not durable yet
    durable: int = 0
    stored: int = 0
    indexed: int = 0
    pages: int = 0
    producers: dict[str, int] = field(default_factory=dict)  # last sequence, latest producer last

    def note_producer(self, producer_id: str, sequence: int) -> None:
        """Remember how far a producer is; those that were quiet the longest are forgotten."""
        self.producers.pop(producer_id, None)
        self.producers[producer_id] = sequence
        if len(self.producers) > MOST_PRODUCERS:
            del self.producers[next(iter(self.producers))]


class Admission(NamedTuple):
    """The place of an event in its writer's stream; `duplicate` if it was given before."""

    sequence: int
    event_id: str
    duplicate: bool


class Writers:
    """All writers of an instance."""

    def __init__(self, ids: IdMemory) -> None:
        self._writers: dict[WriterKey, Writer] = {}
        self.ids = ids

    def __getitem__(self, key: WriterKey) -> Writer:
        writer = self._writers.get(key)
        if writer is None:
            writer = self._writers[key] = Writer()
        return writer

    def __len__(self) -> int:
        return len(self._writers)

    def known(self, key: WriterKey) -> Writer | None:
        return self._writers.get(key)

    def items(self) -> Iterator[tuple[WriterKey, Writer]]:
        return iter(self._writers.items())

    def admit(self, asked: Publication, now: float) -> Admission:
        """Give the event its sequence, or the first answer if it came before."""
        writer = self[asked.tenant, asked.writer_id]
        event_id = asked.event_id or uuid4().hex
        keys = id_keys(asked)
        if keys:
            digest = asked.digest()
            for key in keys:
                if known := self.ids.find(key):
                    if known.digest != digest:
                        raise _conflict(asked, key)
                    return Admission(known.sequence, known.event_id, True)
            if asked.producer_id:
                expected = writer.producers.get(asked.producer_id, 0) + 1
                if asked.producer_sequence != expected:
                    raise SequenceGapError(asked, expected)
                writer.note_producer(asked.producer_id, expected)
            known = Known(writer.last_sequence + 1, event_id, digest, now)
            for key in keys:
                self.ids.remember(key, known)
        writer.last_sequence += 1
        return Admission(writer.last_sequence, event_id, False)

    def withdraw(self, asked: Publication, sequence: int) -> None:
        """Take an admission back because the log had no room. All later ones of that writer are
        taken back as well, so no number is left out."""
        writer = self[asked.tenant, asked.writer_id]
        writer.last_sequence = min(writer.last_sequence, sequence - 1)
        for key in id_keys(asked):
            self.ids.forget(key)
        if asked.producer_id:
            before = asked.producer_sequence - 1
            writer.producers[asked.producer_id] = min(
                writer.producers.get(asked.producer_id, before), before
            )


def id_keys(asked: Publication) -> list[IdKey]:
    """The ids by which a retry of this event would be recognised."""
    keys = []
    if asked.event_id:
        keys.append((asked.tenant, asked.writer_id, asked.event_id, -1))
    if asked.producer_id:
        keys.append((asked.tenant, asked.writer_id, asked.producer_id, asked.producer_sequence))
    return keys


def _conflict(asked: Publication, key: IdKey) -> ConflictError:
    name = f"event_id {key[2]!r}" if key[3] < 0 else f"producer sequence {key[2]!r} {key[3]}"
    return ConflictError(
        f"{name} of writer {asked.writer_id!r} is known already, for other bytes.",
        hint="Give every event an id of its own.",
    )
