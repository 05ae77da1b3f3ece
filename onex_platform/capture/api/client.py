"""A Python client whose retries are harmless: every event has an id before it is first sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import grpc

from onex_platform.base.errors import InfraUnavailableError, OnexError
from onex_platform.capture.api.messages import pubsub
from onex_platform.capture.captured_events import Durability
from onex_platform.capture.flush.retrying import Backoff

_AGAIN = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
}
_AGAIN_NUMBERS = {code.value[0] for code in _AGAIN}


class RefusedError(OnexError):
    """The service will not take this event, however often it is sent."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Receipt:
    """What the service said of an event."""

    event_id: str
    sequence: int
    durability: Durability
    durable_sequence: int
    duplicate: bool


class CaptureClient:
    """Publishes for one writer at a time or many; close it, or use it in `async with`."""

    def __init__(
        self,
        target: str,
        *,
        token: str | None = None,
        credentials: grpc.ChannelCredentials | None = None,
        timeout_seconds: float = 10.0,
        backoff: Backoff | None = None,
    ) -> None:
        self._messages, services = pubsub()
        options = [("grpc.keepalive_time_ms", 30_000), ("grpc.use_local_subchannel_pool", 1)]
        if credentials is None:
            self._channel = grpc.aio.insecure_channel(target, options=options)
        else:
            self._channel = grpc.aio.secure_channel(target, credentials, options=options)
        self._stub = services.PubSubBasicInterfaceStub(self._channel)
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self._timeout = timeout_seconds
        self._backoff = backoff or Backoff(0.05, 2.0, 50)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._channel.close()

    def event(
        self,
        writer_id: str,
        payload: bytes,
        attributes: Mapping[str, str] | None = None,
        *,
        event_id: str | None = None,
        durability: Durability = Durability.UNSPECIFIED,
        timestamp_us: int = 0,
    ) -> Any:
        """An event as it goes over the wire, with an id."""
        return self._messages.PublishRequest(
            topic=writer_id,
            payload=payload,
            attributes=attributes or {},
            event_id=event_id or uuid4().hex,
            durability=durability,
            timestamp_us=timestamp_us,
        )

    async def publish(self, event: Any) -> Receipt:
        """Publish one event, again and again if need be, until the service has it."""
        return _receipt(await self._call(self._stub.Publish, event))

    async def publish_batch(self, events: Sequence[Any]) -> list[Receipt]:
        """Publish many events of any writers; those that must be sent again are, in order."""
        receipts: dict[int, Receipt] = {}
        waiting = list(range(len(events)))
        failures = 0
        while waiting:
            request = self._messages.BatchPublishRequest(records=[events[i] for i in waiting])
            answer = await self._call(self._stub.BatchPublish, request)
            again = []
            for place, result in zip(waiting, answer.results, strict=True):
                if result.code in _AGAIN_NUMBERS:
                    again.append(place)
                elif result.code:
                    raise RefusedError(str(result.code), result.message)
                else:
                    receipts[place] = _receipt(result.response)
            waiting = again
            if waiting:
                failures += 1
                await self._wait(failures, "The service has no room")
        return [receipts[place] for place in range(len(events))]

    async def session(self, events: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Stream events; yields a status per event, in order. The end of the stream ends the
        writers' sessions. A stream that breaks is the caller's to resume: ids make that safe."""
        call = self._stub.Session(events, metadata=self._metadata)
        async for response in call:
            for result in response.results:
                yield result

    async def flush(self, writer_id: str, durability: Durability = Durability.STORED) -> int:
        """End the writer's session; everything up to the returned sequence is that durable."""
        request = self._messages.FlushRequest(topic=writer_id, durability=durability)
        return int((await self._call(self._stub.Flush, request)).sequence)

    async def watermark(self, writer_id: str) -> Any:
        request = self._messages.WatermarkRequest(topic=writer_id)
        return await self._call(self._stub.Watermark, request)

    async def _call(self, method: Any, request: Any) -> Any:
        failures = 0
        while True:
            try:
                return await method(request, timeout=self._timeout, metadata=self._metadata)
            except grpc.aio.AioRpcError as error:
                if error.code() not in _AGAIN:
                    raise RefusedError(error.code().name, error.details() or "") from None
                failures += 1
                await self._wait(failures, error.details() or error.code().name)

    async def _wait(self, failures: int, reason: str) -> None:
        if self._backoff.is_spent(failures):
            raise InfraUnavailableError(f"The snapshotter took nothing {failures} times: {reason}.")
        await asyncio.sleep(self._backoff.delay(failures))


def _receipt(response: Any) -> Receipt:
    return Receipt(
        response.message_id,
        response.sequence,
        Durability(response.durability),
        response.durable_sequence,
        response.duplicate,
    )
