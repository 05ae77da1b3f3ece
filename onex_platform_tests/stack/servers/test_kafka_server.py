"""The broker's data folder."""

from __future__ import annotations

from uuid import UUID

import pytest

from onex_platform.stack.folders import StackFolder
from onex_platform.stack.progress import silent
from onex_platform.stack.servers import kafka_server
from onex_platform_tests.support.own_stacks import NewStack

pytestmark = pytest.mark.servers


def test_a_cluster_id_may_begin_with_a_dash(
    new_stack: NewStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_server, "uuid4", lambda: UUID(bytes=b"\xf8" + bytes(15)))
    folder = StackFolder(new_stack()).server("kafka")
    folder.path.mkdir(parents=True)
    kafka_server.KafkaServer().prepare(folder, silent)
    assert "cluster.id=-A" in (folder.data / "meta.properties").read_text()
