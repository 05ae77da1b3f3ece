"""Dagster's side of a capture archive: there when one is configured, and never in the way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
import yaml

from onex_platform.base.settings import CaptureSettings, Settings
from onex_platform.capture import defs
from onex_platform.capture.captured_archive import CapturedArchive
from onex_platform.capture.flush.dead_letters import DeadLetters
from onex_platform.definitions import build_definitions
from onex_platform_tests.support.captured_archives import (
    archive_address,
    events_by_writer,
    events_in,
    some_pages,
    store_pages,
)
from onex_platform_tests.support.graph import Graph

_ASSETS = {defs.CAPTURED_PAGES, defs.CAPTURE_INDEX, defs.CAPTURE_DEAD_LETTERS}
_COMPACTING = "compact_when_captured_pages_pile_up"


def configured(file: Path, settings: Settings | None = None) -> Settings:
    capture = CaptureSettings(config=file)
    return (settings or Settings()).model_copy(update={"capture": capture})


def test_without_an_archive_the_graph_has_nothing_of_it() -> None:
    graph = build_definitions(settings=Settings()).resolve_asset_graph()
    assert not _ASSETS & set(graph.get_all_asset_keys())


@pytest.mark.parametrize("content", [None, "plugin: [", "plugin: snapshotter\nstorage: {}"])
def test_a_file_that_is_missing_or_wrong_does_not_fail_the_graph(
    tmp_path: Path, content: str | None
) -> None:
    file = tmp_path / "snapshotter.yaml"
    if content is not None:
        file.write_text(content)
    built = build_definitions(settings=configured(file))
    assert set(built.resolve_asset_graph().get_all_asset_keys()) > _ASSETS
    repository = built.get_repository_def()
    assert repository.get_sensor_def(_COMPACTING).default_status is dg.DefaultSensorStatus.RUNNING


@pytest.fixture
def archive(store_settings: Settings, tmp_path: Path) -> Iterator[CapturedArchive]:
    """An archive in a folder, with its index in the platform's database."""
    address = archive_address(tmp_path, store_settings)
    with address.open() as opened:
        yield opened


@pytest.fixture
def graph(archive: CapturedArchive, store_settings: Settings, tmp_path: Path) -> Iterator[Graph]:
    file = tmp_path / "snapshotter.yaml"
    file.write_text(
        yaml.safe_dump(
            {
                "plugin": "snapshotter",
                "storage": {
                    "backend": "filesystem",
                    "config": {"base_path": str(tmp_path / "pages")},
                },
                "wal": {"folder": str(tmp_path / "wal")},
                "compaction": {"settle_seconds": 0, "start_at_pages": 20},
            }
        )
    )
    with dg.DagsterInstance.ephemeral() as instance:
        yield Graph(configured(file, store_settings), instance)


@pytest.mark.servers
def test_enough_small_pages_start_a_run_that_merges_them(
    graph: Graph, archive: CapturedArchive
) -> None:
    pages = some_pages(30)
    store_pages(archive.storage, archive.index, pages[:10])
    waiting = graph.tick(_COMPACTING)
    assert "20 start a run" in waiting.skip_message
    store_pages(archive.storage, archive.index, pages[10:])
    [_] = graph.tick(_COMPACTING).run_requests
    result = graph.run("compact_captured_pages")
    assert result.success
    assert archive.index.count() == 1
    assert events_in(archive) == events_by_writer(pages)
    assert not graph.tick(_COMPACTING).run_requests
    assert graph.run("sweep_captured_pages").success
    assert len(list(archive.storage.list())) == len(pages) + 1, "the grace has not passed"


@pytest.mark.servers
def test_checks_tell_what_is_wrong(graph: Graph, archive: CapturedArchive, tmp_path: Path) -> None:
    entries = store_pages(archive.storage, archive.index, some_pages(5))

    def verdicts() -> dict[str, bool]:
        found = graph.run("prove_capture").get_asset_check_evaluations()
        return {one.check_name: one.passed for one in found}

    good = {
        "captured_pages_are_whole": True,
        "index_knows_the_store": True,
        "nothing_was_given_up": True,
    }
    assert verdicts() == good
    archive.storage.delete(entries[0].key)
    bad = {"captured_pages_are_whole": False, "index_knows_the_store": False}
    assert verdicts() == good | bad
    DeadLetters(tmp_path / "wal" / "dead_letters").add(entries[0], b"page", "x/y", "refused")
    assert verdicts() == dict.fromkeys(good, False)


@pytest.mark.servers
def test_what_has_changed_is_observed(graph: Graph, archive: CapturedArchive) -> None:
    store_pages(archive.storage, archive.index, some_pages(5))
    first = graph.tick("observe_capture")
    assert [event.asset_key for event in first.asset_events] == [
        defs.CAPTURE_INDEX,
        defs.CAPTURE_DEAD_LETTERS,
        defs.CAPTURE_DEAD_LETTERS,
    ]
    again = graph.tick("observe_capture", first.cursor)
    assert not again.asset_events


@pytest.mark.servers
def test_an_archive_that_can_not_be_reached_is_a_reason_to_wait(
    graph: Graph, tmp_path: Path
) -> None:
    (tmp_path / "snapshotter.yaml").write_text("plugin: something else")
    for sensor in (_COMPACTING, "observe_capture"):
        assert "can't be looked at" in graph.tick(sensor).skip_message
