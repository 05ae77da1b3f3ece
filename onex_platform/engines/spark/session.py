"""Spark sessions: in this process, on a master, or on a Spark Connect server, by setting."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from onex_platform.base.errors import InfraConnectionError
from onex_platform.base.settings import KafkaSettings, Settings
from onex_platform.engines.spark import worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOPBACK = "127.0.0.1"
_LOGGING = Path(__file__).with_name("log4j2.properties")


def _arrow(settings: Settings) -> dict[str, str]:
    """How rows go to Python. With a limit in bytes Spark would measure the batch again at every
    row, which costs as much as all the rest of it; so few rows are the limit."""
    return {
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(settings.spark.batch_records),
        "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    }


def spark_properties(settings: Settings, jars: list[str]) -> dict[str, str]:
    """The session's configuration. A Connect server has its own; only its address is given."""
    spark = settings.spark
    if spark.remote is not None:
        return {"spark.remote": spark.remote}
    properties = {
        "spark.master": spark.master or "local[*]",
        "spark.app.name": "onex-platform",
        "spark.jars": ",".join(jars),
        "spark.driver.memory": spark.driver_memory,
        "spark.sql.shuffle.partitions": str(spark.shuffle_partitions),
        "spark.sql.session.timeZone": "UTC",
        "spark.python.daemon.module": worker.MODULE,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}",
    }
    if properties["spark.master"].startswith("local"):
        properties |= {"spark.driver.host": _LOOPBACK, "spark.driver.bindAddress": _LOOPBACK}
    return properties


def kafka_options(kafka: KafkaSettings) -> dict[str, str]:
    """The same cluster and credentials as our own clients use, in the Java client's words."""
    ours = kafka.client_config()
    options = {
        "kafka.bootstrap.servers": ours["bootstrap.servers"],
        "kafka.client.id": ours["client.id"],
        "kafka.security.protocol": ours["security.protocol"],
    }
    if kafka.sasl_mechanism is not None:
        options["kafka.sasl.mechanism"] = kafka.sasl_mechanism
        options["kafka.sasl.jaas.config"] = _jaas(kafka)
    if kafka.ssl_ca_location is not None:
        options["kafka.ssl.truststore.type"] = "PEM"
        options["kafka.ssl.truststore.location"] = str(kafka.ssl_ca_location)
    if kafka.ssl_certificate_location is not None and kafka.ssl_key_location is not None:
        chain = kafka.ssl_certificate_location.read_text()
        options["kafka.ssl.keystore.type"] = "PEM"
        options["kafka.ssl.keystore.certificate.chain"] = chain
        options["kafka.ssl.keystore.key"] = kafka.ssl_key_location.read_text()
        if kafka.ssl_key_password is not None:
            options["kafka.ssl.key.password"] = kafka.ssl_key_password.get_secret_value()
    return {name: str(value) for name, value in options.items()}


def _jaas(kafka: KafkaSettings) -> str:
    security = "org.apache.kafka.common.security"
    if kafka.sasl_mechanism == "OAUTHBEARER":
        return f"{security}.oauthbearer.OAuthBearerLoginModule required;"
    module = (
        "plain.PlainLoginModule" if kafka.sasl_mechanism == "PLAIN" else "scram.ScramLoginModule"
    )
    password = kafka.sasl_password.get_secret_value() if kafka.sasl_password else ""
    quoted = (_quoted(text) for text in (kafka.sasl_username or "", password))
    username, secret = quoted
    return f"{security}.{module} required username={username} password={secret};"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


@contextmanager
def open_session(settings: Settings, jars: list[str]) -> Iterator[SparkSession]:
    """A session for the block; one that runs in this process already is used and left running."""
    from pyspark.sql import SparkSession

    use_this_interpreter()
    if settings.spark.remote is None:
        # A Connect session leaves it behind, and no later session of the process could be local.
        os.environ.pop("SPARK_CONNECT_MODE_ENABLED", None)
    if settings.spark.remote is None and (settings.spark.master or "local").startswith("local"):
        # Nothing leaves this machine; else Spark warns of the address that it picked.
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    running = SparkSession.getActiveSession()
    builder = SparkSession.builder
    for name, value in spark_properties(settings, jars).items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
    except Exception as error:
        raise InfraConnectionError(
            f"No Spark session: {error}.",
            hint="Check ONEX_SPARK_REMOTE and ONEX_SPARK_MASTER, "
            "or the embedded server with `onex stack status`.",
        ) from error
    for name, value in _arrow(settings).items():
        session.conf.set(name, value)
    _leave_out_what_is_raised()
    try:
        yield session
    finally:
        if running is None:
            _stop(session)


def _stop(session: SparkSession) -> None:
    """End the session; of one whose JVM is gone, nothing is left to end."""
    from py4j.protocol import Py4JError

    with suppress(Py4JError, OSError, EOFError):
        if (context := getattr(session, "_sc", None)) is not None:
            # Jobs that are cancelled now would be told as errors.
            context.setLogLevel("OFF")
        session.stop()


def _leave_out_what_is_raised() -> None:
    """py4j logs an error with its traceback, and raises it as well; once is enough."""
    root = logging.getLogger()
    if _is_not_raised not in root.filters:
        root.addFilter(_is_not_raised)


def _is_not_raised(entry: logging.LogRecord) -> bool:
    return not entry.getMessage().endswith("while sending command.")


def use_this_interpreter() -> None:
    """Python workers would take the first `python3` on PATH; they need this one's packages."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
