"""How a run waits that has nothing to do: until a record comes, and no longer than it is told.

A consumer of its own stands behind what the log has, so that the broker's answer to its long poll
is the alarm. It is asked for one record at a time, and what comes meanwhile is not kept: the cut
reads it. A record wakes once, whatever becomes of it, so that one that no cut takes yet, such as
one that is dated ahead, keeps nobody busy. What is no record is found when the time is over: facts
of other processes, partitions that are new, a broker that is away.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import ExitStack, contextmanager, suppress

from confluent_kafka import OFFSET_BEGINNING, KafkaException, TopicPartition

from onex_platform.base.errors import InfraError
from onex_platform.context import PlatformContext
from onex_platform.engines.kafka.clients import KafkaConsumer, open_consumer, translated
from onex_platform.ingest.cuts.consistent_cut import InputPartition, places_of
from onex_platform.ingest.cuts.settling import settling
from onex_platform.ingest.inputs import input_topics, next_offsets
from onex_platform.migration.present import platform_now

# Only that there is a record is wanted.
_ONE_RECORD = {
    "queued.min.messages": 1,
    "fetch.message.max.bytes": 64 * 1024,
    # How long it fetches no more after there was one that nobody took; a second, if not told.
    "fetch.queue.backoff.ms": 10,
}
# So far behind the log, the consumer leaps instead of reading what is there already.
_FAR = 1000
_TICK_SECONDS = 0.002  # the broker's, in which a cut ends, and one more

Cursors = Mapping[InputPartition, int]


class RecordWatch:
    """Waits for records that the log does not have yet."""

    def __init__(self, platform: PlatformContext) -> None:
        self._platform = platform
        self._opened = ExitStack()
        self._consumer: KafkaConsumer | None = None
        self._next: dict[InputPartition, int] = {}  # of each partition, where the consumer stands
        self._known: Set[InputPartition] | None = None  # those that were read when it was placed

    def wait(self, seconds: float) -> None:
        """Wait so long at most; after a record, until a cut can take it."""
        end = time.monotonic() + seconds
        try:
            woken = self._await_record(end)
        except InfraError:  # whoever takes the next step finds out, and says so
            self.close()
            woken = False
        if woken:
            time.sleep(settling(self._platform.settings).seconds + _TICK_SECONDS)
        elif (left := end - time.monotonic()) > 0:
            time.sleep(left)

    def close(self) -> None:
        self._consumer = None
        self._known = None
        with suppress(InfraError):
            self._opened.close()

    def _await_record(self, end: float) -> bool:
        cursors = next_offsets(self._platform)
        consumer = self._standing_behind(cursors)
        with translated(consumer.settings, "say that a record has come"):
            while (left := end - time.monotonic()) > 0:
                message = consumer.poll(left)
                if message is None:
                    continue
                if (error := message.error()) is not None:
                    raise KafkaException(error)
                place = InputPartition(message.topic() or "", message.partition() or 0)
                offset = message.offset() or 0
                self._next[place] = offset + 1
                if offset >= cursors.get(place, 0):
                    return True
        return False

    def _standing_behind(self, cursors: Cursors) -> KafkaConsumer:
        if self._consumer is None:
            self._consumer = self._opened.enter_context(
                open_consumer(self._platform.settings, None, **_ONE_RECORD)
            )
        consumer = self._consumer
        with translated(consumer.settings, "let us watch its topics"):
            if self._known != cursors.keys():  # at first, and when a partition was read at last
                topics = input_topics(platform_now(self._platform).catalogue)
                places = places_of(consumer, topics)
                self._next = {place: cursors.get(place, 0) for place in places}
                begins = {place: cursors.get(place, OFFSET_BEGINNING) for place in places}
                consumer.assign([TopicPartition(*place, begins[place]) for place in places])
                self._known = cursors.keys()
            for place in self._next.keys() & cursors.keys():
                if cursors[place] - self._next[place] > _FAR:
                    consumer.seek(TopicPartition(*place, cursors[place]))
                    self._next[place] = cursors[place]
        return consumer


@contextmanager
def watching_records(platform: PlatformContext) -> Iterator[Callable[[float], None]]:
    """How to wait for records, for the block; nothing is connected before it is needed."""
    watch = RecordWatch(platform)
    try:
        yield watch.wait
    finally:
        watch.close()
