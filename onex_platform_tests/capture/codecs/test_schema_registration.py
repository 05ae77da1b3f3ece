"""Page schemas reach a real registry; one that it refuses stops the start, its absence does not."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
import yaml

from onex_platform.base.errors import ConfigurationError
from onex_platform.base.settings import SchemasSettings, load_settings
from onex_platform.capture.codecs import FORMATS
from onex_platform.capture.codecs.page_schemas import MODE, PageSchema, archive_schemas, page_schema
from onex_platform.capture.codecs.schema_registration import (
    keep_registering,
    open_registry,
    register_schemas,
)
from onex_platform.capture.flush.retrying import RETRIED, Backoff
from onex_platform.capture.slot_config import SchemaRegistryConfig
from onex_platform.cli.main import main
from onex_platform.engines.schema_registry import SchemaRegistry
from onex_platform_tests.support.s3_faults import faulty_way, reply_lost

pytestmark = pytest.mark.servers

_QUICK = Backoff(0.01, 0.05)


@pytest.fixture
def subject() -> str:
    return f"test.{uuid4().hex}"


@pytest.fixture
def registry(schemas: SchemasSettings) -> SchemaRegistry:
    assert schemas.url is not None
    return _registry(schemas.url)


def _registry(url: str) -> SchemaRegistry:
    return open_registry(SchemaRegistryConfig(url=url), load_settings())


def _changed(schema: PageSchema, change: Callable[[Any], None]) -> PageSchema:
    document = json.loads(schema.text)
    change(document)
    return schema._replace(text=json.dumps(document))


@pytest.mark.parametrize("page_format", FORMATS)
def test_each_format_is_registered_once_under_a_mode_of_its_own(
    registry: SchemaRegistry, subject: str, page_format: str
) -> None:
    schema = page_schema(subject, page_format)
    for _ in range(2):
        register_schemas(registry, [schema])
    newest = registry.newest(schema.subject)
    assert newest is not None
    assert (newest.version, newest.format) == (1, schema.language)
    assert registry.mode(schema.subject) == MODE


def _with_trace(document: Any) -> None:
    document["fields"].append({"name": "trace", "type": "string", "default": ""})


def test_a_release_that_knows_less_than_the_newest_version_still_starts(
    registry: SchemaRegistry, subject: str
) -> None:
    ours = page_schema(subject, "parquet")
    for schema in (ours, _changed(ours, _with_trace), ours):
        register_schemas(registry, [schema])
    newest = registry.newest(ours.subject)
    assert newest is not None
    assert newest.version == 2


@pytest.mark.parametrize(
    ("mode", "kept"), [("BACKWARD", MODE), ("FULL_TRANSITIVE", "FULL_TRANSITIVE")]
)
def test_a_weaker_mode_is_replaced_and_a_stricter_one_stays(
    registry: SchemaRegistry, subject: str, mode: str, kept: str
) -> None:
    schema = page_schema(subject, "parquet")
    registry.set_mode(schema.subject, mode)
    register_schemas(registry, [schema])
    assert registry.mode(schema.subject) == kept


def _other_type(text: str) -> str:
    return text.replace("bytes payload = 3;", "int64 payload = 3;")


def test_an_incompatible_schema_stops_the_start_with_two_and_nothing_is_touched(
    registry: SchemaRegistry,
    schemas: SchemasSettings,
    subject: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ours = page_schema(subject, "protobuf")
    registry.register(ours.subject, _other_type(ours.text), ours.language)
    file = _config_file(tmp_path, str(schemas.url), subject)
    with pytest.raises(SystemExit) as ended:
        main(["snapshotter", "serve", "--config", str(file)])
    assert ended.value.code == 2
    assert f"refused as a version of {ours.subject}" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


def test_a_server_that_is_no_registry_stops_the_start(schemas: SchemasSettings) -> None:
    with pytest.raises(ConfigurationError, match="was refused as a version of x-parquet"):
        register_schemas(_registry(f"{schemas.url}/nowhere"), archive_schemas("x", "parquet"))


def _unavailable(handler: Any) -> None:
    handler.answer(503, [("Content-Length", "0")], b"")


def test_a_registry_that_is_away_is_asked_again_until_it_answers(
    registry: SchemaRegistry, schemas: SchemasSettings, subject: str
) -> None:
    schema = page_schema(subject, "ndjson")
    address = urlsplit(str(schemas.url))
    with faulty_way(address.port or 0) as way:
        way.faults += [_unavailable, _unavailable, reply_lost]
        far = _registry(f"{way.endpoint}{address.path}")
        with pytest.raises(RETRIED):
            register_schemas(far, [schema])
        keep_registering(far, [schema], _QUICK).join(30)
        assert not way.faults
    newest = registry.newest(schema.subject)
    assert newest is not None
    assert newest.version == 1


_SERVE = """
import sys
from onex_platform.base import faults
from onex_platform.cli.main import main
if sys.argv[1] != "-":
    faults.arm(sys.argv[1])
main(["snapshotter", "serve", "--config", sys.argv[2]])
"""


@pytest.mark.parametrize(
    "point",
    [
        "before:capture.set_mode",
        "after:capture.set_mode",
        "before:capture.register_schema",
        "after:capture.register_schema",
    ],
)
def test_a_start_that_is_killed_while_it_registers_is_made_good_by_the_next(
    registry: SchemaRegistry, schemas: SchemasSettings, subject: str, tmp_path: Path, point: str
) -> None:
    file = _config_file(tmp_path, str(schemas.url), subject)
    killed = subprocess.run(
        [sys.executable, "-c", _SERVE, point, str(file)], timeout=60, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    wanted = archive_schemas(subject, "protobuf")
    register_schemas(registry, wanted)
    for schema in wanted:
        newest = registry.newest(schema.subject)
        assert newest is not None
        assert (newest.version, registry.mode(schema.subject)) == (1, MODE)


def test_a_snapshotter_starts_without_its_registry_and_says_so(
    subject: str, tmp_path: Path
) -> None:
    file = _config_file(tmp_path, "http://127.0.0.1:9", subject)
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVE, "-", str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert "is ready" in process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "warning: The schema registry at http://127.0.0.1:9 can't be reached" in errors


def _config_file(folder: Path, url: str, subject: str) -> Path:
    path = folder / "snapshotter.yaml"
    values = {
        "plugin": "snapshotter",
        "storage": {"backend": "filesystem", "config": {"base_path": str(folder / "pages")}},
        "index": {"backend": "memstore"},
        "wal": {"folder": str(folder / "data")},
        "listen": {"port": 0, "http_port": 0},
        "schema_registry": {"url": url, "subject": subject},
    }
    path.write_text(yaml.safe_dump(values))
    return path
