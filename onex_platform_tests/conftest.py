"""Fixtures shared by all tests: one real stack per run, a database of its own for each test."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
import structlog
from psycopg import sql
from pydantic import SecretStr
from sqlalchemy.engine import make_url

from onex_platform import stack
from onex_platform.base.settings import PagesSettings, Settings, SparkSettings
from onex_platform.engines.postgres.migrations import migrate
from onex_platform.engines.spark.session import open_session
from onex_platform.stack.jars import spark_jars
from onex_platform.stack.ports import free_port
from onex_platform.topics.provision import create_topics
from onex_platform_tests.support.broker import skip_what_others_left
from onex_platform_tests.support.s3 import running_s3, s3_environment
from onex_platform_tests.support.stacks import connect, embedded_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Whoever runs the command in this process sets up its logs; the next test finds them anew."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def stack_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Attached settings of a PostgreSQL and a Kafka that live as long as the run."""
    with stack.running(embedded_settings(tmp_path_factory.mktemp("stack"))) as attached:
        yield attached


@pytest.fixture
def kafka_settings(stack_settings: Settings) -> Settings:
    """The shared broker; a test creates topics with names of its own."""
    return stack_settings


@pytest.fixture
def database_url(stack_settings: Settings) -> Iterator[str]:
    """The address of a new, empty database that is gone after the test."""
    assert stack_settings.postgres.url is not None
    server = make_url(stack_settings.postgres.url.get_secret_value())
    name = f"test_{uuid4().hex}"
    with connect(stack_settings) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        yield server.set(database=name).render_as_string(hide_password=False)
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def database_settings(stack_settings: Settings, database_url: str) -> Settings:
    """The shared stack's settings, pointed to the test's own database."""
    postgres = stack_settings.postgres.model_copy(update={"url": SecretStr(database_url)})
    return stack_settings.model_copy(update={"postgres": postgres})


@pytest.fixture(scope="session", autouse=True)
def s3_port() -> Iterator[int]:
    """Where the object store of the tests is to be, in the variables by which clients find it.

    A JVM outlives its Spark session and keeps the environment that it was started with.
    """
    port = free_port()
    with pytest.MonkeyPatch.context() as environment:
        for name, value in s3_environment(port).items():
            environment.setenv(name, value)
        yield port


@pytest.fixture(scope="session")
def s3_url(s3_port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A bucket of a real S3 server; a test uses a prefix of its own below it."""
    with running_s3(s3_port, tmp_path_factory.mktemp("s3")) as url:
        yield url


@pytest.fixture(scope="session")
def spark(stack_settings: Settings, s3_port: int) -> Iterator[SparkSession]:
    """One local Spark session for the whole run: starting one costs more than most tests.

    Its tasks have the environment that it was started with, and find the object store by it.
    """
    settings = stack_settings.model_copy(
        update={"spark": SparkSettings(master="local[2]", shuffle_partitions=4)}
    )
    jars = [str(jar) for jar in spark_jars(settings)]
    with open_session(settings, jars) as session:
        yield session


@pytest.fixture(scope="session")
def remote_spark(stack_settings: Settings) -> Iterator[Settings]:
    """A Spark Connect server: a killed client leaves it, and whatever it was doing, running."""
    with stack.running(stack_settings, services=("spark",)) as attached:
        yield attached


@pytest.fixture
def pipeline_settings(database_settings: Settings, tmp_path: Path) -> Settings:
    """The shared broker, a database and an archive of the test's own, and nothing to read yet."""
    migrate(database_settings)
    create_topics(database_settings)
    settings = database_settings.model_copy(
        update={"pages": PagesSettings(url=str(tmp_path / "pages"), settle_seconds=0.05)}
    )
    skip_what_others_left(settings)
    return settings
