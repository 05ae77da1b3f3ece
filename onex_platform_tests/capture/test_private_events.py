"""A field that a shipped contract calls highly private is in no byte the snapshotter writes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from uuid import uuid4

import pytest

from onex_platform.records.key_folder import KeyFolder
from onex_platform.records.privacy import FieldCipher
from onex_platform.topics.catalogue import load_whole_catalogue
from onex_platform_tests.support.key_folders import filled, with_keys
from onex_platform_tests.support.plain_slots import stored_events
from onex_platform_tests.support.snapshotters import config_for, snapshotter

SEARCHES = load_whole_catalogue()["kb.qrs.search-requests.v1"]


@pytest.mark.parametrize("form", ["protobuf", "ndjson"])
def test_what_a_person_searches_for_is_nowhere_in_clear(tmp_path: Path, form: str) -> None:
    assert SEARCHES.private_fields == {"query_text": "high"}
    settings = with_keys(tmp_path)
    filled(settings, tenants=("acme",))
    cipher = FieldCipher(KeyFolder(settings))
    private, public = f"symptoms-{uuid4().hex}", f"query-{uuid4().hex}"
    event = cipher.protected(
        {"event_id": public, "query_id": public, "query_text": private},
        SEARCHES.private_fields,
        SEARCHES.topic,
        "acme",
    )

    async def scenario() -> bytes:
        config = config_for(tmp_path, page={"format": form})
        async with snapshotter(config, tmp_path) as running, running.client() as client:
            sent = client.event("gateway", json.dumps(event).encode(), event_id=public)
            await client.publish(sent)
            # Once from the write-ahead log, once from the page.
            written = b"".join(path.read_bytes() for path in _files(tmp_path))
            assert public.encode() in written
            assert private.encode() not in written
            await client.flush("gateway")
        [stored] = stored_events(running.storage, running.index)["gateway"]
        return bytes(stored.payload)

    stored = json.loads(asyncio.run(scenario()))
    written = {path: path.read_bytes() for path in _files(tmp_path)}
    assert [path for path, content in written.items() if private.encode() in content] == []
    assert any(public.encode() in content for content in written.values())
    assert cipher.revealed(stored)[0]["query_text"] == private


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]
