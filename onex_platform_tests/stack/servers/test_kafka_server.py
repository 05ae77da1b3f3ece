"""The broker's data folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from cryptography import x509

from onex_platform import stack
from onex_platform.base.errors import InfraError
from onex_platform.base.settings import KafkaSettings
from onex_platform.engines.kafka.clients import open_admin
from onex_platform.engines.kafka.topic_admin import topic_names
from onex_platform.stack import processes
from onex_platform.stack.folders import StackFolder
from onex_platform.stack.progress import silent
from onex_platform.stack.servers import kafka_server
from onex_platform.stack.servers.certificates import write_certificate
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


def test_what_the_formatting_prints_is_for_its_owner_from_the_first_byte(
    new_stack: NewStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, int, int]] = []

    def formatted(*_: Any, log: Path, **__: Any) -> int:
        state = log.stat()
        seen.append((log.name, state.st_mode & 0o777, state.st_size))
        return 0

    monkeypatch.setattr(processes, "run", formatted)
    folder = StackFolder(new_stack(kafka_security="sasl")).server("kafka")
    folder.path.mkdir(parents=True)
    # Left by one that was killed.
    (folder.path / "format.log").write_text("keys")
    kafka_server.KafkaServer().prepare(folder, silent)
    assert seen == [("format.log", 0o600, 0)]
    assert not (folder.path / "format.log").exists()


def test_a_secured_broker_lets_in_who_knows_the_password_and_keeps_it_to_itself(
    new_stack: NewStack,
) -> None:
    settings = new_stack(kafka_security="sasl")
    folder = StackFolder(settings).server("kafka")
    with stack.running(settings, services=["kafka"]) as attached:
        assert attached.kafka.security_protocol == "SASL_PLAINTEXT"
        with open_admin(attached) as admin:
            assert topic_names(admin) == set()
        anonymous = KafkaSettings(
            bootstrap_servers=attached.kafka.bootstrap_servers, request_timeout_seconds=2
        )
        with (
            pytest.raises(InfraError),
            open_admin(attached.model_copy(update={"kafka": anonymous})),
        ):
            pass
    password = attached.kafka.sasl_password
    assert password is not None
    holders = [
        path
        for path in folder.path.rglob("*")
        if path.is_file() and password.get_secret_value().encode() in path.read_bytes()
    ]
    assert holders
    assert {path.stat().st_mode & 0o077 for path in holders} == {0}


def test_the_certificate_is_the_broker_s_own_and_its_authority_s(tmp_path: Path) -> None:
    key, authority = tmp_path / "broker.pem", tmp_path / "authority.pem"
    write_certificate(key, authority)
    assert key.stat().st_mode & 0o077 == 0
    assert "PRIVATE KEY" not in authority.read_text()
    server = x509.load_pem_x509_certificates(key.read_bytes())[0]
    [trusted] = x509.load_pem_x509_certificates(authority.read_bytes())
    server.verify_directly_issued_by(trusted)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
