"""A snapshotter for a test: in this process, on real sockets, with plain files behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onex_platform.capture.api.capture_service import build_server
from onex_platform.capture.api.client import CaptureClient
from onex_platform.capture.config import CaptureConfig, parse_config
from onex_platform.capture.flush.retrying import Backoff
from onex_platform.capture.instance import Instance
from onex_platform_tests.support.plain_slots import FolderIndex, FolderStorage


def config_for(folder: Path, **sections: Any) -> CaptureConfig:
    """A small configuration; sections replace or add to it."""
    values: dict[str, Any] = {
        "plugin": "snapshotter",
        "instance": "test",
        "buffer": {"max_age_seconds": 3600, "idle_seconds": 3600},
        "page": {"format": "protobuf", "compression": "none"},
        "storage": {"backend": "filesystem", "config": {"base_path": str(folder / "pages")}},
        "index": {"backend": "memstore"},
        "wal": {"folder": str(folder / "wal"), "segment_bytes": 4 * 1024 * 1024},
        "retry": {"first_seconds": 0.01, "max_seconds": 0.05, "max_attempts": 10_000},
        "listen": {"port": 0, "http_port": 0},
    }
    for name, section in sections.items():
        values[name] = values.get(name, {}) | section if isinstance(section, dict) else section
    return parse_config(values, {})


@dataclass
class Snapshotter:
    """What a test sees of it."""

    instance: Instance
    storage: FolderStorage
    index: FolderIndex
    target: str

    def client(self, **options: Any) -> CaptureClient:
        return CaptureClient(self.target, backoff=Backoff(0.01, 0.1, 200), **options)


@asynccontextmanager
async def snapshotter(config: CaptureConfig, folder: Path) -> AsyncIterator[Snapshotter]:
    """Start one, and stop it in order."""
    storage, index = FolderStorage(folder / "pages"), FolderIndex(folder / "index")
    instance = Instance(config, storage, index)
    await instance.start()
    server, port = build_server(instance, config)
    await server.start()
    try:
        yield Snapshotter(instance, storage, index, f"127.0.0.1:{port}")
    finally:
        await server.stop(0.1)
        await instance.stop(5.0)
