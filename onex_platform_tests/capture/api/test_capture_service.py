"""The service over real sockets: levels, duplicates, sessions, refusals."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from onex_platform.base.errors import InfraUnavailableError
from onex_platform.capture.api.client import CaptureClient, RefusedError
from onex_platform.capture.api.messages import pubsub
from onex_platform.capture.captured_events import Durability
from onex_platform.capture.flush.retrying import Backoff
from onex_platform.capture.slots import PageQuery
from onex_platform_tests.support.plain_slots import stored_events
from onex_platform_tests.support.snapshotters import config_for, snapshotter


async def _publish(client: CaptureClient, writer: str, count: int, **rest: Any) -> list[Any]:
    return [
        await client.publish(client.event(writer, f"{writer} {number}".encode(), **rest))
        for number in range(count)
    ]


def test_events_are_numbered_densely_and_end_in_pages_byte_for_byte(tmp_path: Path) -> None:
    async def scenario() -> None:
        config = config_for(tmp_path, buffer={"max_events": 10})
        async with snapshotter(config, tmp_path) as running, running.client() as client:
            receipts = await _publish(client, "w", 25, attributes={"kind": "test"})
            assert [receipt.sequence for receipt in receipts] == list(range(1, 26))
            assert receipts[-1].durability is Durability.WAL
            assert receipts[-1].durable_sequence == 25
        events = stored_events(running.storage, running.index)["w"]
        assert [event.payload for event in events] == [b"w %d" % n for n in range(25)]
        assert all(event.attributes == {"kind": "test"} for event in events)
        pages = [entry.info for entry in _entries(running)]
        assert sorted((page.reason, page.event_count) for page in pages) == [
            ("count", 10),
            ("count", 10),
            ("shutdown", 5),
        ]

    asyncio.run(scenario())


def _entries(running: Any) -> list[Any]:
    return list(running.index.query(PageQuery("default")))


def test_a_restart_goes_on_with_sequences_and_known_ids(tmp_path: Path) -> None:
    async def scenario() -> None:
        config = config_for(tmp_path)
        async with snapshotter(config, tmp_path) as running, running.client() as client:
            first = await client.publish(client.event("w", b"one", event_id="id-1"))
        async with snapshotter(config, tmp_path) as running, running.client() as client:
            again = await client.publish(client.event("w", b"one", event_id="id-1"))
            assert (again.sequence, again.duplicate) == (first.sequence, True)
            second = await client.publish(client.event("w", b"two", event_id="id-2"))
            assert (second.sequence, second.duplicate) == (2, False)
        events = stored_events(running.storage, running.index)["w"]
        assert [event.payload for event in events] == [b"one", b"two"]

    asyncio.run(scenario())


def test_the_cheaper_log_answers_buffered_and_still_keeps_everything(tmp_path: Path) -> None:
    async def scenario() -> None:
        config = config_for(tmp_path, wal={"mode": "checkpoint"})
        async with snapshotter(config, tmp_path) as running, running.client() as client:
            receipt = await client.publish(client.event("w", b"x", durability=Durability.WAL))
            assert receipt.durability is Durability.BUFFERED
            assert receipt.durable_sequence == 0
        events = stored_events(running.storage, running.index)["w"]
        assert [event.payload for event in events] == [b"x"]

    asyncio.run(scenario())


@pytest.mark.parametrize("level", [Durability.STORED, Durability.INDEXED])
def test_a_writer_can_wait_for_its_page(tmp_path: Path, level: Durability) -> None:
    async def scenario() -> None:
        config = config_for(tmp_path)
        async with snapshotter(config, tmp_path) as running, running.client() as client:
            receipt = await client.publish(client.event("w", b"x", durability=level))
            assert receipt.durability is level
            assert len(list(running.storage.list())) == 1
            marks = await client.watermark("w")
            assert marks.stored_sequence == 1

    asyncio.run(scenario())


def test_a_session_acknowledges_in_order_and_its_end_makes_a_page(tmp_path: Path) -> None:
    async def scenario() -> None:
        config = config_for(tmp_path, buffer={"linger_seconds": 0})
        async with snapshotter(config, tmp_path) as running, running.client() as client:

            async def events() -> AsyncIterator[Any]:
                for number in range(500):
                    yield client.event("w", b"%d" % number)
                yield client.event("", b"refused")

            results = [result async for result in client.session(events())]
            assert [result.response.sequence for result in results[:500]] == list(range(1, 501))
            assert "topic is empty" in results[500].message
            while not _entries(running):
                await asyncio.sleep(0.01)
            assert [entry.info.reason for entry in _entries(running)] == ["session_end"]

    asyncio.run(scenario())


def test_a_batch_has_a_status_per_record(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with snapshotter(config_for(tmp_path), tmp_path) as running:
            messages, services = pubsub()
            async with grpc.aio.insecure_channel(running.target) as channel:
                stub = services.PubSubBasicInterfaceStub(channel)
                answer = await stub.BatchPublish(
                    messages.BatchPublishRequest(
                        records=[
                            messages.PublishRequest(topic="w", payload=b"1"),
                            messages.PublishRequest(topic="w\n", payload=b"2"),
                            messages.PublishRequest(topic="w", payload=b"3", producer_id="p",
                                                    producer_sequence=7),
                            messages.PublishRequest(topic="w", payload=b"4"),
                        ]
                    )
                )  # fmt: skip
        codes = [result.code for result in answer.results]
        assert codes == [0, grpc.StatusCode.INVALID_ARGUMENT.value[0],
                         grpc.StatusCode.FAILED_PRECONDITION.value[0], 0]  # fmt: skip
        assert answer.results[2].expected_sequence == 1
        assert answer.results[3].response.sequence == 2

    asyncio.run(scenario())


_LONG = "w" * 257


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"topic": ""}, "INVALID_ARGUMENT", "topic is empty"),
        ({"topic": _LONG}, "INVALID_ARGUMENT", "257 characters"),
        ({"topic": "a\x00b"}, "INVALID_ARGUMENT", "control characters"),
        ({"durability": 9}, "INVALID_ARGUMENT", "durability is 9"),
        ({"payload": b"x" * 2048}, "INVALID_ARGUMENT", "at most 1024 bytes"),
        ({"attributes": {"a": "b" * 70_000}}, "INVALID_ARGUMENT", "attributes is 70001 bytes"),
        ({"attributes": {f"a{n}": "" for n in range(65)}}, "INVALID_ARGUMENT", "at most 64"),
        ({"event_id": "a\nb"}, "INVALID_ARGUMENT", "event_id is 'a\\nb'"),
        ({"timestamp_us": -1}, "INVALID_ARGUMENT", "timestamp_us is -1"),
        ({"producer_sequence": 3}, "INVALID_ARGUMENT", "producer_id is "),
        ({"producer_id": "p", "producer_sequence": 3}, "FAILED_PRECONDITION", "expected one is 1"),
    ],
)
def test_bad_input_is_refused_by_field_value_and_bound(
    tmp_path: Path, fields: dict[str, Any], code: str, words: str
) -> None:
    async def scenario() -> None:
        config = config_for(tmp_path, limits={"max_event_bytes": 1024})
        async with snapshotter(config, tmp_path) as running:
            messages, services = pubsub()
            async with grpc.aio.insecure_channel(running.target) as channel:
                stub = services.PubSubBasicInterfaceStub(channel)
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await stub.Publish(messages.PublishRequest(**{"topic": "w"} | fields))
        assert caught.value.code().name == code
        assert words in caught.value.details()

    asyncio.run(scenario())


def test_an_event_larger_than_a_page_gets_a_page_of_its_own(tmp_path: Path) -> None:
    async def scenario() -> None:
        config = config_for(tmp_path, buffer={"max_size_bytes": 10_000})
        async with snapshotter(config, tmp_path) as running, running.client() as client:
            for size in (100, 50_000, 100):
                await client.publish(client.event("w", bytes(size)))
        assert sorted(entry.info.event_count for entry in _entries(running)) == [1, 1, 1]

    asyncio.run(scenario())


def test_a_known_id_with_other_bytes_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        config = config_for(tmp_path)
        async with snapshotter(config, tmp_path) as running, running.client() as client:
            await client.publish(client.event("w", b"one", event_id="id"))
            with pytest.raises(RefusedError) as caught:
                await client.publish(client.event("w", b"two", event_id="id"))
        assert caught.value.code == "ALREADY_EXISTS"

    asyncio.run(scenario())


def test_tokens_keep_tenants_apart(tmp_path: Path) -> None:
    tokens = [
        {"token": "secret-a", "tenant": "a", "writers": ["a-"]},
        {"token": "secret-b", "tenant": "b"},
    ]

    async def scenario() -> None:
        async with snapshotter(config_for(tmp_path, tokens=tokens), tmp_path) as running:
            for token, writer, code in (
                (None, "a-1", "UNAUTHENTICATED"),
                ("wrong", "a-1", "UNAUTHENTICATED"),
                ("secret-a", "b-1", "PERMISSION_DENIED"),
            ):
                async with running.client(token=token) as client:
                    with pytest.raises(RefusedError) as caught:
                        await client.publish(client.event(writer, b"x"))
                    assert caught.value.code == code
            for token in ("secret-a", "secret-b"):
                async with running.client(token=token) as client:
                    receipt = await client.publish(client.event("a-1", token.encode()))
                    assert receipt.sequence == 1
        for tenant in ("a", "b"):
            events = stored_events(running.storage, running.index, tenant)
            assert [event.payload for event in events["a-1"]] == [f"secret-{tenant}".encode()]

    asyncio.run(scenario())


def test_a_token_does_not_stand_for_another_tenant(tmp_path: Path) -> None:
    async def scenario() -> None:
        tokens = [{"token": "secret-a", "tenant": "a"}, {"token": "secret-b", "tenant": "b"}]
        messages, services = pubsub()
        metadata = (("authorization", "Bearer secret-a"), ("x-onex-tenant", "b"))
        async with (
            snapshotter(config_for(tmp_path, tokens=tokens), tmp_path) as running,
            grpc.aio.insecure_channel(running.target) as channel,
        ):
            stub = services.PubSubBasicInterfaceStub(channel)
            for call, request in (
                (stub.Publish, messages.PublishRequest(topic="w")),
                (stub.Flush, messages.FlushRequest(topic="w")),
                (stub.Watermark, messages.WatermarkRequest(topic="w")),
            ):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await call(request, metadata=metadata)
                assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED

    asyncio.run(scenario())


def test_subscribing_is_unimplemented(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with snapshotter(config_for(tmp_path), tmp_path) as running:
            messages, services = pubsub()
            async with grpc.aio.insecure_channel(running.target) as channel:
                stub = services.PubSubBasicInterfaceStub(channel)
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    async for _ in stub.Subscribe(messages.SubscribeRequest(topic="w")):
                        pass
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED

    asyncio.run(scenario())


def test_tls_is_spoken_and_clients_may_have_to_show_a_certificate(tmp_path: Path) -> None:
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
         "-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "certificate.pem")],
        check=True,
        capture_output=True,
    )  # fmt: skip
    key, certificate = [(tmp_path / name).read_bytes() for name in ("key.pem", "certificate.pem")]
    listen = {
        "tls_key": str(tmp_path / "key.pem"),
        "tls_certificate": str(tmp_path / "certificate.pem"),
        "tls_client_ca": str(tmp_path / "certificate.pem"),
    }

    async def scenario() -> None:
        async with snapshotter(config_for(tmp_path, listen=listen), tmp_path) as running:
            known = grpc.ssl_channel_credentials(certificate, key, certificate)
            async with running.client(credentials=known) as client:
                assert (await client.publish(client.event("w", b"x"))).sequence == 1
            stranger = grpc.ssl_channel_credentials(certificate)
            impatient = Backoff(0.01, 0.01, 2)
            async with CaptureClient(
                running.target, credentials=stranger, backoff=impatient
            ) as client:
                with pytest.raises(InfraUnavailableError):
                    await client.publish(client.event("w", b"x"))

    asyncio.run(scenario())


def test_the_health_service_and_reflection_answer(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            snapshotter(config_for(tmp_path), tmp_path) as running,
            grpc.aio.insecure_channel(running.target) as channel,
        ):
            asked = health_pb2.HealthCheckRequest(
                service="prism.interfaces.pubsub.PubSubBasicInterface"
            )
            answers = health_pb2.HealthCheckResponse
            assert await _health(channel, asked.service) == answers.SERVING
            assert await _health(channel, "") == answers.SERVING
            running.instance.intake.draining = True
            async with asyncio.timeout(10):
                while await _health(channel, "") != answers.NOT_SERVING:
                    await asyncio.sleep(0.01)
            assert await _health(channel, asked.service) == answers.NOT_SERVING
            database = await asyncio.to_thread(_reflected_services, running.target)
            assert asked.service in database

    asyncio.run(scenario())


async def _health(channel: grpc.aio.Channel, service: str) -> Any:
    asked = health_pb2.HealthCheckRequest(service=service)
    return (await health_pb2_grpc.HealthStub(channel).Check(asked)).status


def _reflected_services(target: str) -> list[str]:
    with grpc.insecure_channel(target) as channel:
        return list(ProtoReflectionDescriptorDatabase(channel).get_services())
