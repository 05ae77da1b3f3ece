"""The retrying consumer: a group's member that hands records to a handler, key by key in order.

What holds:
- Whoever is assigned a partition of the source reads the same partition of `rty` beside it, and
  handles nothing before it has read it to its end.
- Offsets are committed by what the lanes say, never further.
- A handler that fails for one key delays nobody else. One whose own server is away delays all.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Self
from uuid import uuid4

from confluent_kafka import (
    OFFSET_BEGINNING,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from onex_platform.base.errors import InfraError
from onex_platform.base.faults import effect
from onex_platform.base.settings import Settings
from onex_platform.base.telemetry import get_logger, redact
from onex_platform.delivery.config import DeliveryConfig
from onex_platform.delivery.delivered import Delivery, Handler, Redelivery, record_of
from onex_platform.delivery.entries import Entry, EnumFailure
from onex_platform.delivery.entry_writer import PRODUCER, EntryWriter
from onex_platform.delivery.errors import OutageError, PermanentError
from onex_platform.delivery.lane import Lane
from onex_platform.delivery.lease_heartbeats import beating
from onex_platform.delivery.letters import entry_of, read_letters
from onex_platform.delivery.work import Alert, Attempt, Bury, Failure, Revive
from onex_platform.domain.headers import is_sample
from onex_platform.engines.kafka.clients import open_consumer, open_producer
from onex_platform.topics.signals import Published

_MOST = 1000  # records at once
_MOST_WORK = 100  # retries of a lane between two looks at the source
_LOSS_SECONDS = 5.0

OnAlert = Callable[[int, Alert], None]


def wall_clock() -> int:
    return time.time_ns() // 1_000_000


def log_alert(partition: int, alert: Alert) -> None:
    """Tell an alert in the log alone; `delivery_alarms` has one that other systems hear."""
    get_logger(__name__).error(f"delivery.{alert.name}", partition=partition, reason=alert.message)


@dataclass(slots=True)
class _Assigned:
    """A lane that is ours, and the records of its source that had to wait in memory."""

    lane: Lane
    backlog: deque[Message] = field(default_factory=deque)
    flows: bool = False
    is_paused: bool = True
    retry_at: int = 0
    committed: tuple[int | None, int] | None = None


class RetryingConsumer:
    """A member of the group; a context manager whose `run` or `step` does the work.

    `clock` gives Unix milliseconds. `published` says where signs of life go; without
    it none are given. `overrides` are librdkafka's properties of the consumer.
    """

    def __init__(
        self,
        settings: Settings,
        config: DeliveryConfig,
        handler: Handler,
        *,
        on_alert: OnAlert = log_alert,
        clock: Callable[[], int] = wall_clock,
        published: Published | None = None,
        **overrides: Any,
    ) -> None:
        self._settings = settings
        self._config = config
        self._handler = handler
        self._on_alert = on_alert
        self._clock = clock
        self._published = published
        self._overrides = overrides
        self._stack = ExitStack()
        self._lanes: dict[int, _Assigned] = {}
        self._resumes_at = 0  # after an outage
        self._commits_at = 0.0

    def __enter__(self) -> Self:
        config = {
            # A topic that is made anew is found within seconds.
            "topic.metadata.refresh.interval.ms": 5000,
            "fetch.wait.max.ms": 100,
            **self._overrides,
        }
        if config.get("group.protocol") != "consumer":
            # Partitions that stay with their owner keep what it knows of them.
            config.setdefault("partition.assignment.strategy", "cooperative-sticky")
        with ExitStack() as opened:
            instance = config.get("group.instance.id")
            name = f"{self._config.group}/{instance}" if instance else self._config.group
            seconds = self._config.beat_seconds
            signs = beating(self._settings, self._published, name, seconds=seconds)
            self._beat = opened.enter_context(signs)
            self._producer = opened.enter_context(open_producer(self._settings, **PRODUCER))
            self._writer = EntryWriter(self._producer, self._config, self._clock)
            self._consumer = opened.enter_context(
                open_consumer(self._settings, self._config.group, **config)
            )
            self._consumer.subscribe(
                [self._config.source],
                on_assign=self._assign,
                on_revoke=self._revoke,
                on_lost=self._lose,
            )
            self._stack = opened.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.__exit__(*error)  # type: ignore[arg-type]

    def run(self, until: Callable[[], bool]) -> None:
        """Work until told to stop; what was handled is committed on leaving the block."""
        while not until():
            self.step()

    def step(self, patience: float = 0.2) -> None:
        """Take what has come, and do what is due; waits no longer than `patience` seconds."""
        self._beat()
        # `consume` alone would sit out its time-out until so many have come.
        first = self._consumer.poll(self._wait(patience))
        if first is not None:
            self._dispatch([first, *self._consumer.consume(_MOST, 0)])
        self._producer.poll(0)
        now = self._clock()
        for partition, assigned in list(self._lanes.items()):
            self._tend(partition, assigned, now)
        if time.monotonic() >= self._commits_at:
            for assigned in self._lanes.values():
                assigned.lane.tend(now)
            self._commit(self._lanes)
            self._commits_at = time.monotonic() + self._config.commit_seconds

    def waiting(self) -> int:
        """How many records wait in the lanes that are ours."""
        return sum(assigned.lane.waiting for assigned in self._lanes.values())

    def lanes(self) -> int:
        """How many partitions are ours."""
        return len(self._lanes)

    # Records

    def _dispatch(self, messages: Iterable[Any]) -> None:
        lanes, source = self._lanes, self._config.source
        for message in messages:
            if message.error() is not None:
                self._note(message.error())
                continue
            assigned = lanes.get(message.partition())
            if assigned is None:
                continue  # it was revoked meanwhile
            if message.topic() != source:
                entry = entry_of(message, self._config.group, assigned.lane.mine)
                written = message.timestamp()[1]
                assigned.lane.read(entry, message.offset(), written, self._clock())
            elif not assigned.flows or not self._take(assigned, message):
                assigned.backlog.append(message)

    def _take(self, assigned: _Assigned, message: Any) -> bool:
        """Handle a record of the source, or let it wait; False if nothing could be done."""
        self._beat()
        lane, offset, raw = assigned.lane, message.offset(), message.key()
        key = offset if raw is None else raw
        if is_sample(message.headers()):
            pass  # the platform looks whether we get past it
        elif key in lane.keys:
            lane.follow(key, record_of(message), self._clock())
            assigned.flows = lane.takes_more
        elif not lane.has_handled(key, offset):
            try:
                self._handler(Delivery(raw, message.value(), message))
            except OutageError as error:
                self._outage(error)
                return False
            except Exception as error:
                lane.failed(key, record_of(message), _failure(error), self._clock())
                assigned.flows = lane.takes_more
        lane.source = offset + 1
        return True

    def _outage(self, error: OutageError) -> None:
        get_logger(__name__).warning("delivery.outage", error=error)
        self._resumes_at = self._clock() + int(self._config.outage_pause_seconds * 1000)
        for assigned in self._lanes.values():
            assigned.flows = False

    # Lanes

    def _tend(self, partition: int, assigned: _Assigned, now: int) -> None:
        lane = assigned.lane
        if lane.deposed:
            self._reset(partition, assigned)
            return
        if now >= assigned.retry_at:
            lane.write_again()
            assigned.retry_at = now + self._config.limits.refusal_pause
        if now >= self._resumes_at:
            self._work(partition, lane, now)
        assigned.flows = lane.takes_more and now >= self._resumes_at
        while assigned.flows and assigned.backlog:
            if not self._take(assigned, assigned.backlog[0]):
                break
            assigned.backlog.popleft()
        self._writer.append(partition, lane)
        self._pause_or_resume(partition, assigned)
        while lane.alerts:
            self._on_alert(partition, lane.alerts.pop(0))

    def _work(self, partition: int, lane: Lane, now: int) -> None:
        for work in lane.take_due(now, _MOST_WORK):
            self._beat()
            match work:
                case Attempt(key, entry):
                    try:
                        self._handler(_again(entry))
                    except OutageError as error:
                        self._outage(error)
                        lane.postponed(key, self._resumes_at)
                        return
                    except Exception as error:
                        lane.failed_again(key, _failure(error), self._clock())
                    else:
                        lane.succeeded(key, self._clock())
                case Bury():
                    self._writer.bury(partition, lane, work)
                case Revive():
                    self._revive(partition, lane, work)

    def _revive(self, partition: int, lane: Lane, work: Revive) -> None:
        now = self._clock()
        try:
            letters = read_letters(self._settings, self._config, partition, work.dead)
        except InfraError as error:
            get_logger(__name__).warning("delivery.letters_not_read", error=error)
            lane.postponed(work.key, now + self._config.limits.refusal_pause)
            return
        with effect("delivery.revive"):
            lane.revive(work.key, letters, now)

    def _pause_or_resume(self, partition: int, assigned: _Assigned) -> None:
        if assigned.is_paused is not assigned.flows:
            return
        place = [TopicPartition(self._config.source, partition)]
        if assigned.flows:
            self._consumer.resume(place)
        else:
            self._consumer.pause(place)
        assigned.is_paused = not assigned.flows

    def _wait(self, patience: float) -> float:
        due = (assigned.lane.next_due() for assigned in self._lanes.values())
        return wait_seconds(patience, due, self._resumes_at, self._clock())

    # Offsets and assignments

    def _commit(self, lanes: dict[int, _Assigned]) -> None:
        offsets, moved = [], []
        for partition, assigned in lanes.items():
            found = assigned.lane.commits()
            if found is None or found == assigned.committed:
                continue
            moved.append((assigned, found))
            source, retry = found
            if source is not None:
                offsets.append(TopicPartition(self._config.source, partition, source))
            offsets.append(TopicPartition(self._config.retry, partition, retry))
        if not offsets:
            return
        try:
            with effect("delivery.commit"):
                answers = self._consumer.commit(offsets=offsets, asynchronous=False) or []
            for answer in answers:
                if answer.error is not None:
                    raise KafkaException(answer.error)
        except KafkaException as error:
            # Whoever owns the partitions now, or this consumer a moment later, commits again.
            get_logger(__name__).warning("delivery.not_committed", reason=error.args[0].str())
            return
        for assigned, found in moved:
            assigned.committed = found

    def _assign(self, consumer: Any, places: Sequence[TopicPartition]) -> None:
        numbers = [place.partition for place in places]
        consumer.incremental_assign(self._both(numbers))
        consumer.pause([TopicPartition(self._config.source, number) for number in numbers])
        for number in numbers:
            self._lanes[number] = _Assigned(Lane(self._config.limits, uuid4().hex))
            self._tell_of_losses(number)

    def _revoke(self, consumer: Any, places: Sequence[TopicPartition]) -> None:
        numbers = [place.partition for place in places if place.topic == self._config.source]
        self._commit({n: self._lanes[n] for n in numbers if n in self._lanes})
        self._drop(consumer, numbers)

    def _lose(self, consumer: Any, places: Sequence[TopicPartition]) -> None:
        self._drop(
            consumer, [place.partition for place in places if place.topic == self._config.source]
        )

    def _drop(self, consumer: Any, numbers: Iterable[int]) -> None:
        known = [number for number in numbers if self._lanes.pop(number, None) is not None]
        consumer.incremental_unassign(self._both(known))

    def _both(self, numbers: Iterable[int]) -> list[TopicPartition]:
        topics = (self._config.source, self._config.retry)
        return [TopicPartition(topic, number) for number in numbers for topic in topics]

    def _reset(self, partition: int, assigned: _Assigned) -> None:
        """Somebody else claimed the partition that is ours: begin it again from what is committed.

        It happens when an owner that was replaced claims late; it hears of that, and leaves.
        """
        self._lanes[partition] = _Assigned(Lane(self._config.limits, uuid4().hex))
        self._consumer.pause([TopicPartition(self._config.source, partition)])
        limit = self._settings.kafka.request_timeout_seconds
        try:
            for place in self._consumer.committed(self._both([partition]), timeout=limit):
                if place.offset < 0:
                    place.offset = OFFSET_BEGINNING
                self._consumer.seek(place)
        except KafkaException as error:
            get_logger(__name__).warning("delivery.not_reset", reason=error.args[0].str())
            self._lanes[partition] = assigned  # the next step tries again

    def _tell_of_losses(self, partition: int) -> None:
        """Alert if `rty` has deleted entries that nobody of the group had read."""
        place = TopicPartition(self._config.retry, partition)
        try:
            [committed] = self._consumer.committed([place], timeout=_LOSS_SECONDS)
            first, _ = self._consumer.get_watermark_offsets(place, timeout=_LOSS_SECONDS)
        except KafkaException:
            return  # a topic that is not there refuses the claim, which is told
        if 0 <= committed.offset < first:
            lost = (
                f"rty has deleted entries {committed.offset} to {first - 1} before they were read."
            )
            self._on_alert(partition, Alert("entries_lost", lost))

    def _note(self, error: KafkaError) -> None:
        if error.fatal():
            raise KafkaException(error)
        get_logger(__name__).debug("delivery.kafka_error", reason=error.str())


def wait_seconds(patience: float, due: Iterable[int | None], resumes_at: int, now: int) -> float:
    """How long to wait for records: until something may be done, at most for `patience`.

    Nothing is done before an outage is over, however long it has been due.
    """
    times = (max(time_, resumes_at) for time_ in due if time_ is not None)
    return max(0.0, min([patience, *((time_ - now) / 1000 for time_ in times)]))


def _again(entry: Entry) -> Delivery:
    assert entry.record is not None  # noqa: S101
    return Redelivery(entry.record, entry.attempts.failures + 1)


def _failure(error: Exception) -> Failure:
    permanent = isinstance(error, PermanentError)
    kind = EnumFailure.PERMANENT if permanent else EnumFailure.TRANSIENT
    return Failure(kind, redact(f"{type(error).__name__}: {error}"))
