"""The peer of the snapshotter's benchmark: NATS JetStream that syncs before it acknowledges."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

_CONNECTIONS = 64


class NatsServer(NamedTuple):
    pid: int
    address: str


@contextmanager
def nats_server(folder: Path) -> Iterator[NatsServer]:
    """A server on loopback, with its files in the folder."""
    folder.mkdir(parents=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = folder / "nats.conf"
    config.write_text(
        f'listen: "127.0.0.1:{port}"\n'
        f'jetstream {{ store_dir: "{folder}/store", sync_interval: always }}\n'
    )
    process = subprocess.Popen(
        ["nats-server", "-c", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _await(port)
        yield NatsServer(process.pid, f"nats://127.0.0.1:{port}")
    finally:
        process.terminate()
        process.wait()


def _await(port: int) -> None:
    for _ in range(200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError("nats-server did not start")


async def publish_to_nats(address: str, payload: bytes, until: float) -> int:
    """Publish on 64 connections, one event in flight on each; how many were acknowledged."""
    import nats
    from nats.js.api import StorageType, StreamConfig
    from nats.js.errors import BadRequestError

    first = await nats.connect(address)
    with suppress(BadRequestError):  # an earlier round made it
        await first.jetstream().add_stream(
            StreamConfig(name="events", subjects=["events.*"], storage=StorageType.FILE)
        )
    await first.close()

    async def one(number: int) -> int:
        connection = await nats.connect(address)
        stream = connection.jetstream()
        sent = 0
        while time.perf_counter() < until:
            await stream.publish(f"events.w{number}", payload)
            sent += 1
        await connection.close()
        return sent

    return sum(await asyncio.gather(*map(one, range(_CONNECTIONS))))
