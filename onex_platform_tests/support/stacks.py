"""Embedded stacks for tests: their settings, their processes, their database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import psycopg
from sqlalchemy.engine import make_url

from onex_platform import stack
from onex_platform.base.settings import (
    KafkaSettings,
    PostgresSettings,
    SchemasSettings,
    Settings,
    SparkSettings,
    StackSettings,
    load_settings,
)
from onex_platform.stack import client_programs, processes
from onex_platform.stack.folders import StackFolder
from onex_platform.stack.lifecycle import SERVERS


def embedded_settings(folder: Path, **changes: Any) -> Settings:
    """The user's settings with a stack in `folder` and the user's jar cache.

    Tests create and drop what they like: never on servers that the user's settings name.
    """
    user = load_settings()
    own = {**user.stack.model_dump(), "folder": folder, **changes}
    return user.model_copy(
        update={
            "stack": StackSettings.model_validate(own),
            "postgres": PostgresSettings(),
            "kafka": KafkaSettings(),
            "spark": SparkSettings(),
            "schemas": SchemasSettings(),
        }
    )


def connect(attached: Settings) -> psycopg.Connection:
    """A connection to the platform's database that commits each statement."""
    assert attached.postgres.url is not None
    url = make_url(attached.postgres.url.get_secret_value()).set(drivername="postgresql")
    return psycopg.connect(url.render_as_string(hide_password=False), autocommit=True)


def processes_of(settings: Settings) -> list[psutil.Process]:
    """Every process of the stack, whether its state file knows it or not; its clients too."""
    folder = StackFolder(settings)
    servers = [folder.server(name).marker for name in SERVERS]
    return [
        *client_programs.find(client_programs.marker(folder.path)),
        *(process for marker in servers for process in processes.marked(marker)),
    ]


def listening_addresses(settings: Settings) -> set[str]:
    """Where the stack's processes accept connections."""
    return {
        connection.laddr.ip.removeprefix("::ffff:")
        for process in processes_of(settings)
        for connection in process.net_connections(kind="tcp")
        if connection.status == psutil.CONN_LISTEN
    }


@contextmanager
def halted_broker(settings: Settings) -> Iterator[None]:
    """Inside, the broker's process is halted: it neither answers nor closes a connection."""
    embedded = settings.model_copy(update={"kafka": KafkaSettings()})
    (pid,) = [server.pid for server in stack.status(embedded) if server.name == "kafka"]
    assert pid is not None
    broker = psutil.Process(pid)
    broker.suspend()
    try:
        # On a busy machine it goes on for a while after the signal.
        assert processes.wait_until(lambda: broker.status() == psutil.STATUS_STOPPED, 10)
        yield
    finally:
        broker.resume()
