"""A way to a real S3 server on which a test lets answers go wrong, as networks and gateways do."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from onex_platform.stack.ports import LOOPBACK

ERROR_BODY = b"<?xml version='1.0'?><Error><Code>SlowDown</Code></Error>"


@dataclass
class FaultyWay:
    """The way's address, the headers of the puts that came, and what happens to those to come: one
    fault each."""

    endpoint: str
    headers: dict[str, Message] = field(default_factory=dict)  # by path
    faults: list[Callable[[_Handler], None]] = field(default_factory=list)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    way: FaultyWay
    target: int


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    body: bytes

    def handle_one(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.command == "PUT":
            self.server.way.headers[self.path] = self.headers
        if self.command == "PUT" and self.server.way.faults:
            self.server.way.faults.pop(0)(self)
        else:
            self.answer(*self.passed_on())

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = handle_one  # noqa: N815 - the library's names

    def passed_on(self) -> tuple[int, list[tuple[str, str]], bytes]:
        """What the real server says."""
        connection = http.client.HTTPConnection(LOOPBACK, self.server.target, timeout=30)
        connection.request(self.command, self.path, self.body, dict(self.headers))
        reply = connection.getresponse()
        data = reply.read()
        connection.close()
        return reply.status, reply.getheaders(), data

    def answer(self, status: int, headers: list[tuple[str, str]], data: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in ("transfer-encoding", "connection"):
                self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Quiet."""


def reply_lost(handler: _Handler) -> None:
    """The server does its work, and nobody hears of it."""
    handler.passed_on()
    handler.close_connection = True
    handler.connection.close()


def error_in_body(handler: _Handler) -> None:
    """Nothing is stored, and the answer is 200 with an error for a body."""
    headers = [("Content-Length", str(len(ERROR_BODY))), ("ETag", '"none"')]
    handler.answer(200, headers, ERROR_BODY)


def half_stored(handler: _Handler) -> None:
    """The first half is stored, and the answer is that all is well."""
    handler.body = handler.body[: len(handler.body) // 2]
    handler.headers.replace_header("Content-Length", str(len(handler.body)))
    handler.answer(*handler.passed_on())


@contextmanager
def faulty_way(port: int) -> Iterator[FaultyWay]:
    """A way to the server at the port for the block."""
    server = _Server((LOOPBACK, 0), _Handler)
    server.target = port
    server.way = FaultyWay(f"http://{LOOPBACK}:{server.server_port}")
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.way
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
