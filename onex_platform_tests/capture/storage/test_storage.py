"""One suite for every store: a folder, an S3 server, and one that overwrites without asking."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from onex_platform.base.errors import ConfigurationError, InfraConnectionError
from onex_platform.capture.captured_events import PageEntry
from onex_platform.capture.config import StorageConfig
from onex_platform.capture.errors import ObjectExistsError, ObjectMissingError
from onex_platform.capture.flush.keys import path_segment
from onex_platform.capture.flush.page_json import entry_from_attributes, info_to_attributes
from onex_platform.capture.slots import ObjectStorage
from onex_platform.capture.storage import open_storage, require_abilities
from onex_platform.stack.ports import LOOPBACK, free_port
from onex_platform_tests.support import azurite
from onex_platform_tests.support.captured_pages import event, info_of
from onex_platform_tests.support.rclone import running_rclone
from onex_platform_tests.support.s3_faults import (
    FaultyWay,
    error_in_body,
    faulty_way,
    half_stored,
    reply_lost,
)

KEY = "snapshots/2026/03/01/user-1/page.pb.gz"
KEYS = {"access_key": "tests", "secret_key": "known-to-tests-only"}
FOLDER = "filesystem"
# Azure's emulator needs Node: `make test-azure` names it here, and then it is the only store.
AZURITE = os.environ.get("AZURITE")
SERVERS = [pytest.param(name, marks=pytest.mark.servers) for name in ("s3", "rclone")]
STORES = ["azure"] if AZURITE else [FOLDER, *SERVERS]


def configured(backend: str, **options: object) -> StorageConfig:
    return StorageConfig.model_validate({"backend": backend, "config": options})


def changed(config: StorageConfig, **options: object) -> StorageConfig:
    return config.model_copy(update={"config": config.config.model_copy(update=options)})


@pytest.fixture
def s3(s3_url: str, s3_port: int) -> StorageConfig:
    """An empty folder in the bucket of a real server."""
    endpoint = f"http://{LOOPBACK}:{s3_port}"
    return configured(
        "s3", bucket=f"pages/{uuid4()}", endpoint=endpoint, region="us-east-1", **KEYS
    )


@pytest.fixture(scope="module")
def rclone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server's address, as 001 writes it."""
    folder = tmp_path_factory.mktemp("rclone")
    (folder / "pages").mkdir()
    with running_rclone(folder, **KEYS) as endpoint:
        yield endpoint.removeprefix("http://")


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the emulator's account."""
    assert AZURITE is not None
    with azurite.running_azurite(AZURITE, tmp_path_factory.mktemp("azure"), "pages") as endpoint:
        yield endpoint


@pytest.fixture(params=STORES)
def config(request: pytest.FixtureRequest, tmp_path: Path) -> StorageConfig:
    """An empty store of each kind."""
    if request.param == FOLDER:
        return configured(FOLDER, base_path=str(tmp_path / "store"))
    if request.param == "s3":
        config: StorageConfig = request.getfixturevalue("s3")
        return config
    endpoint: str = request.getfixturevalue(request.param)
    if request.param == "azure":
        account = {"access_key": azurite.ACCOUNT, "secret_key": azurite.KEY}
        return configured("azure", bucket=f"pages/{uuid4()}", endpoint=endpoint, **account)
    return configured("minio", bucket=f"pages/{uuid4()}", endpoint=endpoint, **KEYS)


@pytest.fixture
def storage(config: StorageConfig) -> ObjectStorage:
    return open_storage(config)


def put(storage: ObjectStorage, key: str, data: bytes, **attributes: str) -> None:
    storage.put(key, data, content_type="application/protobuf", attributes=attributes)


def test_what_is_put_is_found_and_read(storage: ObjectStorage) -> None:
    before = datetime.now(UTC)
    head = storage.put(KEY, b"0123456789", content_type="application/protobuf", attributes={})
    assert (head.key, head.size) == (KEY, 10)
    assert abs(head.modified_at - before) < timedelta(minutes=5)
    assert storage.get(KEY) == b"0123456789"
    assert storage.get(KEY, 3) == b"3456789"
    assert storage.get(KEY, 3, 2) == b"34"
    assert storage.get(KEY, 8, 100) == b"89"
    assert storage.get(KEY, 10) == b""
    assert storage.head(KEY).size == 10


def test_what_is_not_there_is_said_to_be_missing(storage: ObjectStorage) -> None:
    put(storage, KEY, b"data")  # a server makes the bucket
    for question in (storage.get, storage.head):
        with pytest.raises(ObjectMissingError, match="nowhere"):
            question("nowhere")
    assert storage.delete("nowhere") is False


def test_nothing_is_overwritten(storage: ObjectStorage) -> None:
    put(storage, KEY, b"first")
    with pytest.raises(ObjectExistsError, match="never overwritten"):
        put(storage, KEY, b"other")
    assert storage.get(KEY) == b"first"


def test_our_own_page_is_no_obstacle(storage: ObjectStorage) -> None:
    put(storage, KEY, b"first")
    put(storage, KEY, b"first")
    assert [found.key for found in storage.list()] == [KEY]


def test_what_is_deleted_is_gone(storage: ObjectStorage) -> None:
    put(storage, KEY, b"data")
    assert storage.delete(KEY) is True
    assert storage.delete(KEY) is False
    assert list(storage.list()) == []


def test_a_listing_names_everything_below_a_prefix(storage: ObjectStorage) -> None:
    keys = [f"a/{number:04}" for number in range(60)]
    for key in (*keys, "b/1"):
        put(storage, key, key.encode())
    assert sorted(found.key for found in storage.list("a")) == keys
    assert sorted(found.key for found in storage.list()) == [*keys, "b/1"]
    assert {found.size for found in storage.list("b")} == {3}


@pytest.mark.parametrize("writer", ["../../x", "ä/ö b+c", "%2F", "..", "x" * 256, "名" * 85])
def test_any_writer_is_one_segment_of_a_key(storage: ObjectStorage, writer: str) -> None:
    key = f"pages/{path_segment(writer)}/1.pb"
    put(storage, key, b"data")
    assert storage.get(key) == b"data"
    assert [found.key for found in storage.list("pages")] == [key]


def test_a_page_brings_its_metadata_along(storage: ObjectStorage) -> None:
    info = info_of([event("名 \u00e4", 1)], tags={"region": "a  b"})
    head = storage.put(
        KEY,
        b"data",
        content_type="application/protobuf",
        attributes=info_to_attributes(info, "c" * 64),
    )
    if storage.backend == FOLDER:  # a folder keeps none: the page's own header has it
        assert head.attributes == {}
    else:
        entry = entry_from_attributes(KEY, 4, storage.head(KEY).attributes)
        assert entry == PageEntry(info, KEY, 4, "c" * 64)
        assert head.attributes["Content-Type"] == "application/protobuf"


def test_the_probe_tells_what_the_store_does_and_leaves_nothing(
    storage: ObjectStorage, request: pytest.FixtureRequest
) -> None:
    refuses = "rclone" not in request.node.name
    assert storage.probe() == {"conditional_create": refuses, "versioning": False}
    assert list(storage.list()) == []


def test_versions_that_are_asked_for_must_be_kept(config: StorageConfig) -> None:
    wanting = changed(config, enable_versioning=True)
    with pytest.raises(ConfigurationError, match=r"enable_versioning is true.*keeps no versions"):
        require_abilities(open_storage(wanting), wanting)
    assert not require_abilities(open_storage(config), config)["versioning"]


def test_a_large_page_is_one_object(storage: ObjectStorage) -> None:
    data = bytes(range(256)) * (48 * 1024)
    put(storage, KEY, data)
    assert storage.get(KEY) == data


@pytest.mark.servers
def test_a_storage_class_reaches_the_store(way: FaultyWay, s3: StorageConfig) -> None:
    wanted = changed(s3, storage_class="INTELLIGENT_TIERING", endpoint=way.endpoint)
    put(open_storage(wanted), KEY, b"data")
    assert way.headers[f"/{wanted.config.bucket}/{KEY}"]["x-amz-storage-class"] == (
        "INTELLIGENT_TIERING"
    )


@pytest.fixture
def way(s3_url: str, s3_port: int) -> Iterator[FaultyWay]:
    with faulty_way(s3_port) as way:
        yield way


@pytest.fixture
def far(way: FaultyWay, s3: StorageConfig) -> ObjectStorage:
    """The server at the end of the way; its store is probed before anything goes wrong."""
    storage = open_storage(changed(s3, endpoint=way.endpoint))
    storage.probe()
    return storage


@pytest.mark.servers
def test_an_answer_lost_after_success_is_success_at_the_next_try(
    way: FaultyWay, far: ObjectStorage
) -> None:
    way.faults.append(reply_lost)
    with pytest.raises(InfraConnectionError):
        put(far, KEY, b"data")
    assert far.get(KEY) == b"data"
    put(far, KEY, b"data")


@pytest.mark.servers
def test_an_error_in_the_body_of_a_200_is_a_failure(way: FaultyWay, far: ObjectStorage) -> None:
    way.faults.append(error_in_body)
    with pytest.raises(InfraConnectionError, match=r"said that it has .* and does not"):
        put(far, KEY, b"data")
    put(far, KEY, b"data")
    assert far.get(KEY) == b"data"


@pytest.mark.servers
def test_a_page_of_which_half_was_stored_is_a_failure(way: FaultyWay, far: ObjectStorage) -> None:
    way.faults.append(half_stored)
    with pytest.raises(InfraConnectionError):
        put(far, KEY, b"01234567")


def test_a_store_that_is_not_there_can_be_tried_again() -> None:
    nobody = configured("minio", bucket="pages", endpoint=f"{LOOPBACK}:{free_port()}", **KEYS)
    with pytest.raises(InfraConnectionError, match=r"storage\.config"):
        put(open_storage(nobody), KEY, b"data")
