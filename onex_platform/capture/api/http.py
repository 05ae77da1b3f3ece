"""001's three health routes and the metrics, for those who don't speak gRPC. Red is 503."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from time import monotonic
from typing import Any

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from onex_platform.base.errors import OnexError
from onex_platform.capture.budget import Pressure
from onex_platform.capture.instance import Instance


def build_app(instance: Instance) -> Starlette:
    """The routes; each answers from memory, but the index, which is asked for its count."""

    async def buffers(_request: Request) -> Response:
        return _answer(buffers_health(instance), instance.is_well)

    async def storage(_request: Request) -> Response:
        health = instance.flusher.storage_health
        status = health.status()
        status["last_write_success"] = status.pop("last_success")
        status["write_success_rate"] = status.pop("success_rate")
        status["avg_write_latency_ms"] = round(health.average_ms, 1)
        status["dead_letters"] = len(instance.dead_letters)
        return _answer(status, health.is_healthy)

    async def index(_request: Request) -> Response:
        health = instance.flusher.index_health
        entries = None
        try:
            entries = await asyncio.to_thread(instance.index.count)
        except OnexError as error:
            health.failed(error)
        status = health.status()
        status["last_publish_success"] = status.pop("last_success")
        status["publish_success_rate"] = status.pop("success_rate")
        status["index_entry_count"] = entries
        return _answer(status, health.is_healthy)

    async def metrics(_request: Request) -> Response:
        text = generate_latest(instance.metrics.registry)
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    routes = {
        "/health/buffers": buffers,
        "/health/storage": storage,
        "/health/index": index,
        "/metrics": metrics,
    }
    return Starlette(routes=[Route(path, handler) for path, handler in routes.items()])


def buffers_health(instance: Instance) -> dict[str, Any]:
    """001's fields, and what makes the route red."""
    now, intake = monotonic(), instance.intake
    limit = instance.config.buffer.max_age_seconds
    ages = [now - buffer.oldest_at for buffer in intake.buffers]
    pressure = instance.config.budget().pressure(intake.memory.resident_bytes)
    return {
        "active_writers": len(intake.buffers),
        "total_buffered_events": intake.buffers.events,
        "total_buffer_size_bytes": intake.buffers.size,
        "oldest_buffer_age_seconds": round(max(ages, default=0.0), 3),
        "writers_exceeding_age_limit": sum(age > limit for age in ages),
        "waiting_pages": len(intake.pages),
        "pressure": Pressure(pressure).name.lower(),
        "log": instance.log_state,
    }


def _answer(body: dict[str, Any], is_well: bool) -> Response:
    return JSONResponse(body, status_code=200 if is_well else 503)


class HttpServer(uvicorn.Server):
    """A server on the caller's loop; signals are the caller's as well."""

    def __init__(self, instance: Instance) -> None:
        listen = instance.config.listen
        super().__init__(
            uvicorn.Config(
                build_app(instance),
                host=listen.host,
                port=listen.http_port,
                log_config=None,
                access_log=False,
                lifespan="off",
            )
        )

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    @property
    def port(self) -> int:
        return int(self.servers[0].sockets[0].getsockname()[1])
