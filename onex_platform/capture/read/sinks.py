"""Where replayed events go: standard output, a file, a Kafka topic."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import msgspec

from onex_platform.capture.captured_events import CapturedEvent
from onex_platform.engines.kafka.clients import KafkaProducer, KafkaRecord, produce_all
from onex_platform.records.wrapping import Wrapper


def line_of(event: CapturedEvent) -> bytes:
    """An event as a line of JSON, by 001's names; its payload in base64."""
    return (
        msgspec.json.encode(
            {
                "tenant": event.tenant,
                "writer_id": event.writer_id,
                "sequence": event.sequence,
                "event_id": event.event_id,
                "timestamp": event.timestamp_us,
                "payload": event.payload,
                "attributes": dict(event.attributes),
            }
        )
        + b"\n"
    )


class StreamSink:
    """Lines to a stream that can't be taken back."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def write(self, events: Sequence[CapturedEvent]) -> None:
        self._stream.write(b"".join(map(line_of, events)))
        self._stream.flush()

    def position(self) -> int:
        return 0

    def resume(self, position: int) -> None:
        """What was printed stays printed."""


class FileSink:
    """Lines to a file, synced; a resumed replay first cuts off what its cursor does not know."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab")

    def __enter__(self) -> FileSink:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def write(self, events: Sequence[CapturedEvent]) -> None:
        self._file.write(b"".join(map(line_of, events)))
        self._file.flush()
        os.fdatasync(self._file.fileno())

    def position(self) -> int:
        return self._file.tell()

    def resume(self, position: int) -> None:
        self._file.truncate(position)
        self._file.seek(position)


class KafkaSink:
    """Records keyed by writer, acknowledged. After a crash a batch may come again: its event ids
    are in the headers."""

    def __init__(self, producer: KafkaProducer, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self._wrapper = Wrapper(producer.settings)

    def write(self, events: Sequence[CapturedEvent]) -> None:
        produce_all(self._producer, map(self._record, events))

    def position(self) -> int:
        return 0

    def resume(self, position: int) -> None:
        """What was sent stays sent."""

    def _record(self, event: CapturedEvent) -> KafkaRecord:
        own = {
            "x-writer-id": event.writer_id,
            "x-event-id": event.event_id,
            "x-sequence": str(event.sequence),
            "x-captured-at": str(event.timestamp_us),
        }
        return KafkaRecord(
            self._topic,
            event.payload,
            key=event.writer_id,
            headers=self._wrapper.completed(
                [*event.attributes.items(), *own.items()], event.payload, event.event_id
            ),
            timestamp_ms=max(0, event.timestamp_us // 1000),
        )
