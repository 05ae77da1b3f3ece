"""Commands for captured pages, on an archive that a configuration names."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from uuid import uuid4

import pytest
from click.testing import CliRunner, Result
from confluent_kafka.admin import NewTopic

from onex_platform.base import settings as base_settings
from onex_platform.base.errors import ConfigurationError
from onex_platform.base.settings import Settings
from onex_platform.capture.captured_events import CapturedEvent
from onex_platform.capture.config import load_config
from onex_platform.capture.flush.keys import DEFAULT_TENANT
from onex_platform.capture.index import open_index
from onex_platform.capture.storage import open_storage
from onex_platform.cli import captured_pages
from onex_platform.cli.pages import command
from onex_platform.cli.snapshotter import command as snapshotter
from onex_platform.engines.kafka.clients import open_admin, read_to_end
from onex_platform_tests.support.captured_archives import store_pages
from onex_platform_tests.support.captured_pages import entry_of, event, events_of, page_of

pytestmark = pytest.mark.servers


@pytest.fixture
def config(tmp_path: Path, store_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration whose archive holds a page with three events."""
    for module in (base_settings, captured_pages):
        monkeypatch.setattr(module, "load_settings", lambda: store_settings)
    file = tmp_path / "snapshotter.yaml"
    file.write_text(
        "plugin: snapshotter\n"
        f"wal: {{folder: {tmp_path / 'wal'}}}\n"
        f"storage: {{backend: filesystem, config: {{base_path: {tmp_path / 'store'}}}}}\n"
    )
    events = [event("a", number, tenant=DEFAULT_TENANT) for number in (1, 2)]
    events.append(event("b", 1, tenant=DEFAULT_TENANT, attributes={"type": "login"}))
    page = page_of(events)
    opened = load_config(file)
    open_storage(opened.storage).put("1.pb.zst", page.data, content_type="x/y", attributes={})
    index = open_index(opened.index, store_settings)
    index.publish([entry_of(page, "1.pb.zst")])
    index.close()
    return file


def run(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(one) for one in arguments], catch_exceptions=False)


def test_a_replay_prints_lines(config: Path) -> None:
    result = run("replay", "--config", config)
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(line["writer_id"], line["sequence"]) for line in lines] == [
        ("a", 1),
        ("a", 2),
        ("b", 1),
    ]
    assert "3 events replayed" in result.stderr


def test_a_replay_selects_and_goes_on(config: Path, tmp_path: Path) -> None:
    target, cursor = tmp_path / "out.ndjson", tmp_path / "cursor"
    options = ("--to", f"file:{target}", "--cursor", cursor, "--attribute", "type=login")
    for _ in range(2):
        assert run("replay", "--config", config, *options).exit_code == 0
    assert [json.loads(line)["writer_id"] for line in target.read_text().splitlines()] == ["b"]
    window = ("--from", "2026-03-01T12:00:02Z", "--until", "2026-03-01T12:00:03Z")
    [line] = run("replay", "--config", config, *window).stdout.splitlines()
    assert json.loads(line)["sequence"] == 2


def test_a_replay_fills_a_topic(config: Path, store_settings: Settings) -> None:
    topic = f"replayed-{uuid4()}"
    with open_admin(store_settings) as admin:
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
    assert run("replay", "--config", config, "--to", f"kafka:{topic}").exit_code == 0
    records = list(read_to_end(store_settings, [topic]))
    assert sorted(record.value() for record in records) == [b"a 1", b"a 2", b"b 1"]
    headers = {record.value(): dict(record.headers()) for record in records}
    assert headers[b"b 1"]["type"] == b"login"
    assert headers[b"a 2"]["x-event-id"] == b"a-2"


def test_a_comparison_reports_faults(config: Path, tmp_path: Path) -> None:
    assert run("reconcile", "--config", config).exit_code == 0
    (tmp_path / "store" / "1.pb.zst").unlink()
    result = run("reconcile", "--config", config, "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["missing"] == ["1.pb.zst"]


def test_a_target_that_can_not_be_meant_is_refused(config: Path) -> None:
    with pytest.raises(ConfigurationError, match="'nowhere' can't be used"):
        run("replay", "--config", config, "--to", "nowhere")
    result = run("replay", "--config", config, "--from", "yesterday")
    assert result.exit_code == 2
    assert "2026-03-01T12:00:00Z" in result.stderr


def maintain(*arguments: object) -> Result:
    return CliRunner().invoke(snapshotter, [str(one) for one in arguments], catch_exceptions=False)


def add_pages(config: Path, settings: Settings, *pages: list[CapturedEvent]) -> None:
    opened = load_config(config)
    index = open_index(opened.index, settings)
    store_pages(open_storage(opened.storage), index, pages)
    index.close()


@pytest.mark.usefixtures("spark")
def test_small_pages_are_merged_and_swept(
    config: Path, store_settings: Settings, tmp_path: Path
) -> None:
    more = [events_of("a", [number], tenant=DEFAULT_TENANT) for number in (3, 4)]
    add_pages(config, store_settings, *more)
    before = run("replay", "--config", config).stdout
    dry = maintain("compact", "--config", config, "--dry-run")
    assert dry.stdout.startswith("would merge  3 pages")
    merged = maintain("compact", "--config", config)
    assert merged.exit_code == 0
    assert "merged pages    1" in merged.stdout
    assert "0 replaced pages" in maintain("sweep", "--config", config, "--dry-run").stdout
    with config.open("a") as file:
        file.write("compaction: {grace_seconds: 0}\n")
    assert "would delete 3" in maintain("sweep", "--config", config, "--dry-run").stdout
    assert "deleted 3 replaced" in maintain("sweep", "--config", config).stdout
    after = run("replay", "--config", config).stdout
    assert sorted(after.splitlines()) == sorted(before.splitlines())
    assert maintain("verify", "--config", config).exit_code == 0
    assert "deleted 0 expired" in maintain("sweep", "--config", config).stdout
    with config.open("a") as file:
        file.write("retention: {days: 1}\n")
    assert "would delete 1 expired" in maintain("sweep", "--config", config, "--dry-run").stdout
    assert "deleted 1 expired" in maintain("sweep", "--config", config).stdout
    assert run("replay", "--config", config).stdout == ""


def test_a_replica_is_verified_and_compared_by_its_address(config: Path, tmp_path: Path) -> None:
    replica = tmp_path / "replica"
    shutil.copytree(tmp_path / "store", replica)
    place = ("--config", config, "--url", replica)
    assert maintain("verify", *place).exit_code == 0
    assert run("reconcile", *place).exit_code == 0
    (replica / "1.pb.zst").unlink()
    gone = maintain("verify", *place, "--json")
    assert gone.exit_code == 1
    assert json.loads(gone.stdout)["faults"] == ["1.pb.zst: it is missing"]
    assert maintain("verify", "--config", config).exit_code == 0, "ours is whole"
