"""A snapshotter as a process: it runs until it is told to stop, and then stops in order."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

from onex_platform.base.errors import PrerequisiteError
from onex_platform.base.garbage import collect_rarely
from onex_platform.capture.api.capture_service import build_server
from onex_platform.capture.api.http import HttpServer
from onex_platform.capture.config import CaptureConfig
from onex_platform.capture.instance import Instance
from onex_platform.capture.read.kafka_relay import Relay
from onex_platform.capture.slots import ObjectStorage, PageIndex

_GRACE_SECONDS = 2.0  # for calls that are under way when the service is told to stop


async def serve(
    config: CaptureConfig,
    storage: ObjectStorage,
    index: PageIndex,
    ready: Callable[[int, int], None],
    relay: Relay | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; `ready` hears the two ports."""
    instance = Instance(config, storage, index, relay)
    await instance.start()
    server, port = build_server(instance, config)
    await server.start()
    http = HttpServer(instance)
    http_task = asyncio.create_task(http.serve())
    while not http.started:
        if http_task.done():
            raise PrerequisiteError(f"The HTTP port {config.listen.http_port} can't be used.")
        await asyncio.sleep(0.01)
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    ready(port, http.port)
    await stopping.wait()
    instance.intake.draining = True
    await server.stop(_GRACE_SECONDS)
    await instance.stop()
    http.should_exit = True
    await http_task


def run(
    config: CaptureConfig,
    storage: ObjectStorage,
    index: PageIndex,
    ready: Callable[[int, int], None],
    relay: Relay | None = None,
) -> None:
    """Serve on uvloop, which saves a third of a unary call."""
    import uvloop

    collect_rarely()  # else it takes a quarter of our time
    uvloop.run(serve(config, storage, index, ready, relay))
