"""A store is reached as its options say, whatever the environment says."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from uuid import uuid4

import pytest

from onex_platform.base.errors import InfraConnectionError
from onex_platform.log.store import PageStore, StoreOptions
from onex_platform_tests.support.s3 import s3_environment

PAGE = "log/2026/03/01/12/page.parquet"
CREDENTIALS = {
    "aws_access_key_id": "tests",
    "aws_secret_access_key": "known-to-tests-only",
    "aws_region": "us-east-1",
}


class AnsweringServer(ThreadingHTTPServer):
    """Answers every request with one status, and keeps the headers that it was sent."""

    def __init__(self, status: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = status
        self.requests: list[dict[str, str]] = []

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: AnsweringServer

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append({name.lower(): value for name, value in self.headers.items()})
        self.send_response(self.server.status)
        self.send_header("ETag", '"an e-tag"')
        self.send_header("x-amz-version-id", "a version")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[AnsweringServer]:
    with AnsweringServer(request.param) as answering:
        thread = Thread(target=answering.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield answering
        answering.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but the options tells where the store is."""
    for name in s3_environment(0):
        monkeypatch.delenv(name)


@pytest.mark.parametrize("server", [200], indirect=True)
def test_a_create_tells_e_tag_and_version_and_asks_for_the_storage_class(
    server: AnsweringServer,
) -> None:
    options = StoreOptions(
        endpoint=server.endpoint, credentials=CREDENTIALS, storage_class="STANDARD_IA"
    )
    created = PageStore("s3://bucket", options).create(PAGE, b"page", {"reason": "full"})
    assert created == ('"an e-tag"', "a version")
    [request] = server.requests
    assert request["x-amz-storage-class"] == "STANDARD_IA"
    assert request["x-amz-meta-reason"] == "full"
    assert request["if-none-match"] == "*"


@pytest.mark.parametrize("server", [503], indirect=True)
@pytest.mark.parametrize("retries", [0, 1])
def test_a_store_is_tried_again_as_often_as_allowed(server: AnsweringServer, retries: int) -> None:
    options = StoreOptions(endpoint=server.endpoint, credentials=CREDENTIALS, max_retries=retries)
    with pytest.raises(InfraConnectionError, match="failed at"):
        PageStore("s3://bucket", options).create(PAGE, b"page")
    assert len(server.requests) == 1 + retries


@pytest.mark.servers
def test_a_real_server_is_reached_by_options_alone(s3_url: str, s3_port: int) -> None:
    options = StoreOptions(endpoint=f"http://127.0.0.1:{s3_port}", credentials=CREDENTIALS)
    store = PageStore(f"{s3_url}/{uuid4()}", options)
    assert store.create(PAGE, b"page").e_tag
    # As a task has it that the store has travelled to.
    assert pickle.loads(pickle.dumps(store)).read(PAGE) == b"page"  # noqa: S301 - our own


def test_a_folder_has_no_use_for_options_and_nothing_prints_credentials(tmp_path: Path) -> None:
    options = StoreOptions(credentials=CREDENTIALS, storage_class="STANDARD_IA")
    store = PageStore(str(tmp_path), options)
    store.create(PAGE, b"page")
    assert store.read(PAGE) == b"page"
    assert "known-to-tests-only" not in repr(options)
