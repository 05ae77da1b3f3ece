"""The embedded Kafka: one real broker in KRaft mode, broker and controller in one process.

Topics are never created by accident, and a topic's own settings decide about time stamps and
retention, as on a production cluster. With ONEX_STACK_KAFKA_SECURITY=sasl, clients log in with
SCRAM, and an authoriser lets them do what they have rights for; the stack's own account, whose
password stands in the server's folder, may do everything. With sasl_tls they also speak TLS, and
trust the authority in that folder. Which of it holds is decided when the data folder is formatted.
"""

from __future__ import annotations

import secrets
from base64 import urlsafe_b64encode
from pathlib import Path
from uuid import uuid4

from pydantic import SecretStr

from onex_platform.base.errors import InfraUnavailableError
from onex_platform.base.settings import Settings
from onex_platform.engines.health import kafka_answers
from onex_platform.stack import processes
from onex_platform.stack.atomic_files import build_atomically, write_atomically
from onex_platform.stack.folders import ServerFolder, ServerRecord
from onex_platform.stack.jars import BROKER, jar_files
from onex_platform.stack.java import find_java, java_environment
from onex_platform.stack.ports import LOOPBACK
from onex_platform.stack.progress import Report, silent
from onex_platform.stack.servers.certificates import write_certificate
from onex_platform.stack.servers.server import Server

_SINGLE_NODE = {
    "process.roles": "broker,controller",
    "node.id": 1,
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    # A lone developer's consumer need not wait for others, nor for fifty partitions of offsets.
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
    "share.coordinator.state.topic.num.partitions": 4,
    "log.cleaner.backoff.ms": 1000,
    "log.cleaner.dedupe.buffer.size": 32 * 2**20,
}

_ADMIN = "admin"
_MECHANISM = "SCRAM-SHA-512"
SECURED = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": _MECHANISM,
    "sasl.mechanism.inter.broker.protocol": _MECHANISM,
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:{_ADMIN}",
    "allow.everyone.if.no.acl.found": "false",
}
# Relative to the working folder, as the data folder is. The broker is a client of its own.
_KEY, _AUTHORITY = "broker.pem", "authority.pem"
_WITH_TLS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_SSL,CONTROLLER:SASL_PLAINTEXT",
    "listener.name.plaintext.ssl.keystore.type": "PEM",
    "listener.name.plaintext.ssl.keystore.location": _KEY,
    "listener.name.plaintext.ssl.truststore.type": "PEM",
    "listener.name.plaintext.ssl.truststore.location": _AUTHORITY,
}


class KafkaServer(Server):
    name = "kafka"
    title = "Kafka"
    port_count = 2  # clients, controller

    def is_external(self, settings: Settings) -> bool:
        return settings.kafka.bootstrap_servers is not None

    def prepare(self, folder: ServerFolder, report: Report) -> None:
        find_java(folder.settings)
        jar_files(BROKER, folder.settings, report)
        if not folder.data.exists():
            report("Formatting Kafka's data folder")
        build_atomically(folder.data, lambda draft: _format(folder, draft))

    def command(self, folder: ServerFolder, ports: tuple[int, ...]) -> list[str]:
        properties = _write_properties(folder, folder.data, ports)
        return [*_java(folder), "kafka.Kafka", str(properties)]

    def answers(self, attached: Settings) -> bool:
        return kafka_answers(attached)

    def attach(self, settings: Settings, folder: ServerFolder, record: ServerRecord) -> Settings:
        update: dict[str, object] = {"bootstrap_servers": f"{LOOPBACK}:{record.port}"}
        password = _password_file(folder)
        if password.exists():
            update |= {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": _MECHANISM}
            if (authority := folder.path / _AUTHORITY).exists():
                update |= {"security_protocol": "SASL_SSL", "ssl_ca_location": authority}
            if settings.kafka.sasl_username is None:
                update["sasl_username"] = _ADMIN
                update["sasl_password"] = SecretStr(password.read_text(encoding="utf-8"))
        kafka = settings.kafka.model_copy(update=update)
        return settings.model_copy(update={"kafka": kafka})


def _java(folder: ServerFolder) -> list[str]:
    jars = jar_files(BROKER, folder.settings, silent)
    return [
        find_java(folder.settings),
        f"-Xmx{folder.settings.stack.kafka_heap}",
        f"-Donex.stack={folder.marker}",
        "-Djava.awt.headless=true",
        "-Dorg.slf4j.simpleLogger.showDateTime=true",
        "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS",
        "-cp",
        f"{jars[0].parent}/*",
    ]


def _write_properties(folder: ServerFolder, data: Path, ports: tuple[int, ...]) -> Path:
    clients, controller = (f"{LOOPBACK}:{port}" for port in ports)
    properties = _SINGLE_NODE | {
        "controller.quorum.voters": f"1@{controller}",
        "listeners": f"PLAINTEXT://{clients},CONTROLLER://{controller}",
        "advertised.listeners": f"PLAINTEXT://{clients}",
        # Relative to the working folder: a property file can't hold every path as it is.
        "log.dirs": data.name,
    }
    if _password_file(folder).exists():
        properties |= SECURED | _logins(_password_file(folder).read_text(encoding="utf-8"))
        if (folder.path / _AUTHORITY).exists():
            properties |= _WITH_TLS
    path = folder.path / "server.properties"
    path.touch(mode=0o600)
    write_atomically(path, "".join(f"{name}={value}\n" for name, value in properties.items()))
    path.chmod(0o600)  # it may hold the password
    return path


def _format(folder: ServerFolder, draft: Path) -> None:
    """Give the data folder its cluster id; the broker refuses to start without one."""
    extra = []
    security = folder.settings.stack.kafka_security
    for name in (_KEY, _AUTHORITY):
        (folder.path / name).unlink(missing_ok=True)
    if security == "sasl_tls":
        write_certificate(folder.path / _KEY, folder.path / _AUTHORITY)
    if security != "none":
        password = secrets.token_urlsafe(24)
        _password_file(folder).touch(mode=0o600)
        _password_file(folder).write_text(password, encoding="utf-8")
        extra = [f"--add-scram={_MECHANISM}=[name={_ADMIN},password={password}]"]
    else:
        _password_file(folder).unlink(missing_ok=True)
    cluster_id = urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
    properties = _write_properties(folder, draft, (9092, 9093))
    # One word, because an id may begin with a dash.
    arguments = ["format", f"--cluster-id={cluster_id}", f"--config={properties}", *extra]
    # The tool prints the keys that it stored: they stay in no log.
    log = draft.with_name("format.log") if extra else folder.log
    if extra:
        log.unlink(missing_ok=True)
        log.touch(mode=0o600)
    exit_code = processes.run(
        [*_java(folder), "kafka.tools.StorageTool", *arguments],
        cwd=folder.path,
        log=log,
        environment=java_environment(folder.settings),
        timeout_seconds=folder.settings.stack.start_timeout_seconds,
    )
    if extra:
        log.unlink(missing_ok=True)
    if exit_code != 0:
        raise InfraUnavailableError(
            "Kafka's data folder could not be formatted.",
            hint=folder.log_hint(),
        )


def _password_file(folder: ServerFolder) -> Path:
    return folder.path / "admin.password"


def _logins(password: str) -> dict[str, str]:
    """The broker's own logins, as client of itself and of the controller in it."""
    module = "org.apache.kafka.common.security"
    login = f'username="{_ADMIN}" password="{password}"'
    plain = f'{module}.plain.PlainLoginModule required {login} user_{_ADMIN}="{password}";'
    scram = f"{module}.scram.ScramLoginModule required {login};"
    return {
        "listener.name.controller.plain.sasl.jaas.config": plain,
        "listener.name.plaintext.scram-sha-512.sasl.jaas.config": scram,
    }
