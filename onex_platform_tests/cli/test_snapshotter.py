"""`onex snapshotter` and `onex pages dlq`, as an operator types them."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from onex_platform.capture.api.client import CaptureClient
from onex_platform.capture.codecs import read_page
from onex_platform.capture.flush.dead_letters import DeadLetters
from onex_platform.cli.main import cli, main
from onex_platform_tests.support.captured_pages import entry_of, events_of, page_of


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    path = tmp_path / "snapshotter.yaml"
    values = {
        "plugin": "snapshotter",
        "storage": {"backend": "filesystem", "config": {"base_path": str(tmp_path / "pages")}},
        "index": {"backend": "memstore"},
        "wal": {"folder": str(tmp_path / "data")},
        "listen": {"port": 0, "http_port": 0},
    }
    path.write_text(yaml.safe_dump(values))
    return path


@contextmanager
def _serving(config_file: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", "from onex_platform.cli.main import main; main()",
         "snapshotter", "serve", "--config", str(config_file)],
        stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        match = re.search(r"gRPC (\S+),", process.stdout.readline())
        assert match is not None
        yield process, match[1]
    finally:
        process.kill()
        process.wait()


@pytest.mark.servers
def test_serve_captures_until_sigterm_and_ends_with_zero(config_file: Path) -> None:
    async def publish(target: str) -> None:
        async with CaptureClient(target) as client:
            await client.publish(client.event("writer", b"captured"))

    with _serving(config_file) as (process, target):
        asyncio.run(publish(target))
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    [page] = (config_file.parent / "pages").rglob("*.pb.gz")
    [event] = read_page(page.read_bytes()).events
    assert event.payload == b"captured"


@pytest.mark.servers
def test_a_second_process_is_refused_by_the_name_of_the_first(
    config_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with _serving(config_file) as (process, _):
        with pytest.raises(SystemExit) as ended:
            main(["snapshotter", "serve", "--config", str(config_file)])
        assert process.poll() is None
    assert ended.value.code == 2
    assert f"process {process.pid}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"buffr": {}}, "buffr: this key is not known"),
        (
            {"storage": {"backend": "filesystem",
                         "config": {"base_path": "x", "key_template": "../../x"}}},
            "could lead out of its prefix",
        ),
        (
            {"storage": {"backend": "filesystem",
                         "config": {"base_path": "x", "key_template": "{sequence}.ndjson"}}},
            "the pages are .pb.gz",
        ),
    ],
)  # fmt: skip
def test_a_bad_file_ends_with_two_before_anything_starts(
    config_file: Path, capsys: pytest.CaptureFixture[str], change: dict[str, object], words: str
) -> None:
    config_file.write_text(yaml.safe_dump(yaml.safe_load(config_file.read_text()) | change))
    with pytest.raises(SystemExit) as ended:
        main(["snapshotter", "check", "--config", str(config_file)])
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


def test_check_says_what_follows_from_a_file(config_file: Path) -> None:
    result = CliRunner().invoke(cli, ["snapshotter", "check", "--config", str(config_file)])
    assert result.exit_code == 0
    assert "answers   WAL" in result.output


def test_dead_letters_are_listed_shown_redriven_and_purged(config_file: Path) -> None:
    letters = DeadLetters(config_file.parent / "data" / "dead_letters")
    ids = []
    for number in range(2):
        page = page_of(events_of(f"writer-{number}", [1, 2]))
        letters.add(
            entry_of(page, f"a/{number}.pb"),
            page.data,
            "application/x-protobuf",
            "the bucket is gone",
        )
        ids.append(page.info.page_id)

    def dlq(*arguments: str) -> str:
        command = ["pages", "dlq", arguments[0], "--config", str(config_file), *arguments[1:]]
        result = CliRunner().invoke(cli, command)
        assert result.exit_code == 0, result.output
        return result.output

    assert "2 dead letters" in dlq("list")
    assert json.loads(dlq("show", ids[0]))["error"] == "the bucket is gone"
    assert "stored a/0.pb" in dlq("redrive", ids[0])
    assert (config_file.parent / "pages" / "a" / "0.pb").is_file()
    assert "1 dead letters purged" in dlq("purge", "--all", "--yes")
    assert "0 dead letters" in dlq("list")
    assert not list((config_file.parent / "data" / "dead_letters").iterdir())
