"""The network side: 001's write-only interface over gRPC, each answer with the level it reached."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from time import monotonic
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from onex_platform.base.errors import OnexError
from onex_platform.capture.acceptance import DrainingError
from onex_platform.capture.api.auth import Authority, ForbiddenError, UnauthenticatedError
from onex_platform.capture.api.messages import pubsub
from onex_platform.capture.api.requests import InvalidRequestError, Publication, check_id
from onex_platform.capture.captured_events import CutReason, Durability
from onex_platform.capture.config import CaptureConfig
from onex_platform.capture.instance import Instance
from onex_platform.capture.memory_use import BudgetFullError
from onex_platform.capture.wal.commit import LogBrokenError, LogFullError
from onex_platform.capture.writers import (
    Admission,
    ConflictError,
    SequenceGapError,
    Writer,
    WriterKey,
)

RETRY_MS = 500
_IN_FLIGHT = 1024  # events of one session between arrival and acknowledgement
_STATUS = {
    InvalidRequestError: grpc.StatusCode.INVALID_ARGUMENT,
    ConflictError: grpc.StatusCode.ALREADY_EXISTS,
    SequenceGapError: grpc.StatusCode.FAILED_PRECONDITION,
    UnauthenticatedError: grpc.StatusCode.UNAUTHENTICATED,
    ForbiddenError: grpc.StatusCode.PERMISSION_DENIED,
    BudgetFullError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    LogFullError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    LogBrokenError: grpc.StatusCode.UNAVAILABLE,
    DrainingError: grpc.StatusCode.UNAVAILABLE,
}
_LATER = {grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE}
_LEVELS = {level.value: level for level in Durability}


class _Entry:
    """One record between its arrival and its answer. Settling it tells the call that it is in; no
    task is made per record, because that costs more than the log does."""

    __slots__ = ("_tell", "admission", "error", "key", "level", "settled")

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell = tell
        self.settled = False
        self.error: OnexError | None = None
        self.admission = Admission(0, "", False)
        self.key: WriterKey = ("", "")
        self.level = Durability.UNSPECIFIED

    def settle(self, error: OnexError | None = None) -> None:
        self.error = error
        self.settled = True
        self._tell()


class CaptureService:
    """Handlers. They run on the loop that owns the intake, so they call it directly."""

    def __init__(self, instance: Instance) -> None:
        config = instance.config
        self._messages = pubsub()[0]
        self._intake = instance.intake
        self._metrics = instance.metrics
        self._authority = Authority(config.tokens)
        self._default = config.default_durability
        self._log_level = Durability.BUFFERED if config.wal.mode == "checkpoint" else Durability.WAL
        self._max_batch = config.limits.max_batch
        self._flush_on_disconnect = config.buffer.flush_on_disconnect
        self._captured = {level: instance.metrics.events.labels(level.name) for level in Durability}

    async def Publish(self, request: Any, context: Any) -> Any:  # noqa: N802
        answered = asyncio.get_running_loop().create_future()
        entry = _Entry(partial(_resolve, answered))
        self._enter(entry, request, context.invocation_metadata())
        await answered
        if entry.error is not None:
            await self._abort(context, entry.error)
        return self._response(entry)

    async def BatchPublish(self, request: Any, context: Any) -> Any:  # noqa: N802
        count = len(request.records)
        if count > self._max_batch:
            message = f"records has {count} of them; it must be at most {self._max_batch}."
            await self._abort(context, InvalidRequestError(message))
        answered = asyncio.get_running_loop().create_future()
        waiting = count

        def tell() -> None:
            nonlocal waiting
            waiting -= 1
            if not waiting:
                _resolve(answered)

        metadata = context.invocation_metadata()
        entries = [_Entry(tell) for _ in range(count)]
        for entry, record in zip(entries, request.records, strict=True):
            self._enter(entry, record, metadata)
        if entries:
            await answered
        return self._messages.BatchPublishResponse(results=map(self._status, entries))

    async def Session(  # noqa: N802
        self, requests: AsyncIterator[Any], context: Any
    ) -> AsyncIterator[Any]:
        session = _Session()
        reader = asyncio.create_task(self._read(requests, context, session))
        try:
            async for entries in session.settled():
                yield self._messages.SessionResponse(results=map(self._status, entries))
        finally:
            # A client that was killed ends its stream as if it were done, or cancels us: the same.
            reader.cancel()
            self._end_session(session.writers)

    async def _read(self, requests: AsyncIterator[Any], context: Any, session: _Session) -> None:
        metadata = context.invocation_metadata()
        try:
            async for request in requests:
                entry = _Entry(session.tell)
                self._enter(entry, request, metadata)
                session.add(entry)
                await session.room()
        finally:
            session.end()

    def _end_session(self, writers: set[WriterKey]) -> None:
        if not self._flush_on_disconnect:
            return
        self._metrics.disconnects.inc()
        for key in writers:
            self._intake.end_session(key, monotonic())

    async def Flush(self, request: Any, context: Any) -> Any:  # noqa: N802
        try:
            level = max(_level(request.durability or Durability.STORED), self._log_level)
            key, sequence = self._writer(request.topic, context)
            if sequence:
                answered = asyncio.get_running_loop().create_future()
                entry = _Entry(partial(_resolve, answered))
                self._intake.watermarks.wait_for(key, sequence, level, entry.settle)
                self._intake.request_flush(key, sequence, CutReason.FLUSH)
                await answered
            return self._messages.FlushResponse(sequence=sequence, durability=level)
        except OnexError as error:
            await self._abort(context, error)

    async def Watermark(self, request: Any, context: Any) -> Any:  # noqa: N802
        try:
            key, _ = self._writer(request.topic, context)
        except OnexError as error:
            await self._abort(context, error)
        writer = self._intake.writers.known(key)
        if writer is None:
            return self._messages.WatermarkResponse()
        return self._messages.WatermarkResponse(
            last_sequence=writer.last_sequence,
            durable_sequence=self._durable(writer),
            stored_sequence=writer.stored,
            indexed_sequence=writer.indexed,
        )

    async def Subscribe(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        await context.abort(
            grpc.StatusCode.UNIMPLEMENTED,
            "The snapshotter is write-only. Read with `onex pages replay`.",
        )
        yield

    def _writer(self, writer_id: str, context: Any) -> tuple[WriterKey, int]:
        check_id("topic", writer_id)
        tenant = self._authority.tenant(context.invocation_metadata(), writer_id)
        writer = self._intake.writers.known((tenant, writer_id))
        return (tenant, writer_id), writer.last_sequence if writer else 0

    def _enter(self, entry: _Entry, request: Any, metadata: Iterable[Any]) -> None:
        """Hand a record to the intake at once, in the order of the calls; the entry is settled
        when the record is as durable as asked, or refused."""
        try:
            self._capture(entry, request, metadata)
        except OnexError as error:
            entry.settle(error)

    def _capture(self, entry: _Entry, request: Any, metadata: Iterable[Any]) -> None:
        level = entry.level = _level(request.durability or self._default)
        tenant = self._authority.tenant(metadata, request.topic)
        key = entry.key = (tenant, request.topic)
        asked = Publication(
            tenant,
            request.topic,
            request.payload,
            dict(request.attributes),
            request.event_id,
            request.producer_id,
            request.producer_sequence,
            request.timestamp_us,
        )
        done = entry.settle if level is Durability.WAL else None
        admission = entry.admission = self._intake.publish(
            asked, now=monotonic(), now_us=time.time_ns() // 1000, done=done
        )
        self._captured[level].inc()
        if level is Durability.BUFFERED:
            entry.settle()
        elif level is Durability.WAL:
            entry.level = self._log_level
        else:
            self._intake.watermarks.wait_for(key, admission.sequence, level, entry.settle)
            self._intake.request_flush(key, admission.sequence, CutReason.REQUESTED)

    def _durable(self, writer: Writer) -> int:
        """Up to where a power cut takes nothing; a log that is synced now and then promises that
        only of what is stored."""
        return writer.durable if self._log_level is Durability.WAL else writer.stored

    def _response(self, entry: _Entry) -> Any:
        sequence, event_id, duplicate = entry.admission
        return self._messages.PublishResponse(
            message_id=event_id,
            sequence=sequence,
            durability=entry.level,
            durable_sequence=self._durable(self._intake.writers[entry.key]),
            duplicate=duplicate,
        )

    def _status(self, entry: _Entry) -> Any:
        if (error := entry.error) is None:
            return self._messages.RecordStatus(response=self._response(entry))
        code = _code(error)
        self._metrics.refused.labels(code.name).inc()
        return self._messages.RecordStatus(
            code=code.value[0],
            message=str(error),
            retry_delay_ms=RETRY_MS if code in _LATER else 0,
            expected_sequence=getattr(error, "expected", 0),
        )

    async def _abort(self, context: Any, error: OnexError) -> None:
        code = _code(error)
        self._metrics.refused.labels(code.name).inc()
        status = Status(code=code.value[0], message=str(error))
        if code in _LATER:
            delay = RetryInfo()
            delay.retry_delay.FromMilliseconds(RETRY_MS)
            detail = AnyMessage()
            detail.Pack(delay)
            status.details.append(detail)
        trailers = [("grpc-status-details-bin", status.SerializeToString())]
        if isinstance(error, SequenceGapError):
            trailers.append(("x-onex-expected-sequence", str(error.expected).encode()))
        await context.abort(code, str(error), trailing_metadata=tuple(trailers))


class _Session:
    """The records of one stream, answered in their order."""

    def __init__(self) -> None:
        self.writers: set[WriterKey] = set()
        self._entries: deque[_Entry] = deque()
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._ended = False

    def add(self, entry: _Entry) -> None:
        if entry.error is None:
            self.writers.add(entry.key)
        self._entries.append(entry)
        self._news.set()

    def tell(self) -> None:
        self._news.set()

    def end(self) -> None:
        self._ended = True
        self._news.set()

    async def room(self) -> None:
        """Wait while too many records are unanswered: the client must not outrun the log."""
        while len(self._entries) >= _IN_FLIGHT:
            self._room.clear()
            await self._room.wait()

    async def settled(self) -> AsyncIterator[list[_Entry]]:
        """Runs of records that can be answered now, until the stream has ended and all were."""
        while self._entries or not self._ended:
            await self._news.wait()
            self._news.clear()
            ready = []
            while self._entries and self._entries[0].settled:
                ready.append(self._entries.popleft())
            if ready:
                self._room.set()
                yield ready


def _level(value: int) -> Durability:
    if (level := _LEVELS.get(value)) is None:
        names = ", ".join(level.name for level in Durability if level)
        raise InvalidRequestError(f"durability is {value}; it must be one of {names}.")
    return level


def _code(error: OnexError) -> grpc.StatusCode:
    return _STATUS.get(type(error), grpc.StatusCode.INTERNAL)


def _resolve(future: asyncio.Future[None]) -> None:
    """End a wait; a caller who has gone away is no reason to fail."""
    if not future.done():
        future.set_result(None)


def build_server(instance: Instance, config: CaptureConfig) -> tuple[grpc.aio.Server, int]:
    """A server with our service, the health service and reflection; and the port that it got."""
    from grpc_health.v1 import health_pb2
    from grpc_health.v1.health import aio as health
    from grpc_health.v1.health_pb2_grpc import add_HealthServicer_to_server
    from grpc_reflection.v1alpha import reflection

    messages, services = pubsub()
    listen, limits = config.listen, config.limits
    keepalive = int(listen.keepalive_seconds * 1000)
    largest = (limits.max_event_bytes + limits.max_attribute_bytes) * 2 + 64 * 1024
    server = grpc.aio.server(
        options=[
            # Above it gRPC refuses a message before our code can name the field.
            ("grpc.max_receive_message_length", max(largest, 64 * 1024 * 1024)),
            ("grpc.keepalive_time_ms", keepalive),
            ("grpc.keepalive_timeout_ms", max(keepalive // 3, 1000)),
            ("grpc.http2.min_ping_interval_without_data_ms", 5000),
            ("grpc.so_reuseport", 0),
        ]
    )
    services.add_PubSubBasicInterfaceServicer_to_server(CaptureService(instance), server)
    name = messages.DESCRIPTOR.services_by_name["PubSubBasicInterface"].full_name
    checks = health.HealthServicer()
    add_HealthServicer_to_server(checks, server)

    async def tell(up: bool) -> None:
        for service in ("", name):  # probes that name none mean the whole server
            await checks.set(service, _serving(health_pb2, up))

    instance.on_health(tell)
    reflection.enable_server_reflection(
        (name, "grpc.health.v1.Health", reflection.SERVICE_NAME), server
    )
    address = f"{listen.host}:{listen.port}"
    if listen.tls_certificate and listen.tls_key:
        port = server.add_secure_port(address, _credentials(config))
    else:
        port = server.add_insecure_port(address)
    return server, port


def _serving(health_pb2: Any, up: bool) -> Any:
    status = health_pb2.HealthCheckResponse
    return status.SERVING if up else status.NOT_SERVING


def _credentials(config: CaptureConfig) -> grpc.ServerCredentials:
    listen = config.listen
    key, certificate = [
        path.read_bytes() for path in (listen.tls_key, listen.tls_certificate) if path is not None
    ]
    roots = listen.tls_client_ca.read_bytes() if listen.tls_client_ca else None
    return grpc.ssl_server_credentials(
        [(key, certificate)], root_certificates=roots, require_client_auth=roots is not None
    )
