"""Fixtures shared by all tests: one real stack per run, a database of its own for each test."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
import structlog
from hypothesis import settings as examples
from psycopg import sql
from pydantic import SecretStr
from sqlalchemy.engine import make_url

from onex_platform import stack
from onex_platform.base.settings import PagesSettings, SchemasSettings, Settings, SparkSettings
from onex_platform.base.telemetry import hide_hosts
from onex_platform.engines.postgres.database import database_address
from onex_platform.engines.postgres.migrations import migrate
from onex_platform.engines.spark.session import open_session
from onex_platform.governance.provision import create_topics
from onex_platform.ingest.archive import PageArchive
from onex_platform.stack.jars import spark_jars
from onex_platform.stack.ports import free_port
from onex_platform.topics.catalogue import load_catalogue
from onex_platform_tests.support.archives import open_archive
from onex_platform_tests.support.broker import skip_what_others_left
from onex_platform_tests.support.class_archives import java_variables
from onex_platform_tests.support.live_registry import enter_fleet
from onex_platform_tests.support.s3 import running_s3, s3_environment
from onex_platform_tests.support.snapshot_registry import Registry, open_registry
from onex_platform_tests.support.stacks import connect, embedded_settings
from onex_platform_tests.support.stored_rows import Store, open_store
from onex_platform_tests.support.watched_clock import Watched, open_watched
from onex_platform_tests.support.work_sharing import ServersOnce
from onex_platform_tests.support.written_logs import WrittenLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# How long an example takes is the machine's affair.
examples.register_profile("untimed", parent=examples.default, deadline=None)
examples.load_profile("untimed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files of minutes first, then those that need servers, then the rest.

    A worker that came upon a file of minutes last would work on it alone.
    """
    marked = {
        name: {item.path for item in items if item.get_closest_marker(name)}
        for name in ("long", "servers")
    }
    items.sort(key=lambda item: [item.path not in marked[name] for name in ("long", "servers")])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ServersOnce | None:
    return ServersOnce(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Whoever runs the command in this process sets up its logs; the next test finds them anew."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()
    hide_hosts(False)


@pytest.fixture(scope="session", autouse=True)
def short_lived_java() -> Iterator[None]:
    """Every Java program of the tests, whoever starts it, is one that starts quickly."""
    with pytest.MonkeyPatch.context() as environment:
        for name, value in java_variables().items():
            environment.setenv(name, value)
        yield


@pytest.fixture(scope="session")
def stack_settings(
    tmp_path_factory: pytest.TempPathFactory, short_lived_java: None
) -> Iterator[Settings]:
    """Attached settings of a PostgreSQL and a Kafka that live as long as the run."""
    with stack.running(embedded_settings(tmp_path_factory.mktemp("stack"))) as attached:
        _trust_this_machine(attached)
        yield attached


def _trust_this_machine(attached: Settings) -> None:
    """Let PostgreSQL leave syncing to the system: tests kill processes, never the machine."""
    with connect(attached) as connection:
        for option in ("fsync", "full_page_writes"):
            connection.execute(f"ALTER SYSTEM SET {option} = off")
        connection.execute("SELECT pg_reload_conf()")


@pytest.fixture(scope="session")
def schemas(
    tmp_path_factory: pytest.TempPathFactory, short_lived_java: None
) -> Iterator[SchemasSettings]:
    """A real schema registry that lives as long as the run; a test has subjects of its own."""
    own = embedded_settings(tmp_path_factory.mktemp("schemas"))
    with stack.running(own, services=("schemas",)) as attached:
        yield attached.schemas


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory, short_lived_java: None) -> Iterator[Settings]:
    """The administrator's settings of a broker that speaks TLS with everybody, and asks for a name
    and for rights; it lives as long as the run."""
    own = embedded_settings(tmp_path_factory.mktemp("secured"), kafka_security="sasl_tls")
    with stack.running(own, services=["kafka"]) as attached:
        yield attached


@pytest.fixture
def kafka_settings(stack_settings: Settings) -> Settings:
    """The shared broker; a test creates topics with names of its own."""
    return stack_settings


@contextmanager
def _new_database(server: Settings, template: str = "template1") -> Iterator[Settings]:
    """The server's settings, pointed to a copy of the template that is gone after the block."""
    assert server.postgres.url is not None
    name = f"test_{uuid4().hex}"
    address = make_url(server.postgres.url.get_secret_value()).set(database=name)
    url = SecretStr(address.render_as_string(hide_password=False))
    postgres = server.postgres.model_copy(update={"url": url})
    with connect(server) as connection:
        connection.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy").format(
                sql.Identifier(name), sql.Identifier(template)
            )
        )
        yield server.model_copy(update={"postgres": postgres})
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def database_settings(stack_settings: Settings) -> Iterator[Settings]:
    """The shared stack's settings, pointed to an empty database of the test's own."""
    with _new_database(stack_settings) as settings:
        yield settings


@pytest.fixture
def database_url(database_settings: Settings) -> str:
    assert database_settings.postgres.url is not None
    return database_settings.postgres.url.get_secret_value()


@pytest.fixture(scope="session")
def migrated_template(stack_settings: Settings) -> Iterator[str]:
    """A migrated database that nobody works in: copying it is faster than migrating anew."""
    with _new_database(stack_settings) as settings:
        migrate(settings)
        yield database_address(settings.postgres).database or ""


@pytest.fixture
def store_settings(stack_settings: Settings, migrated_template: str) -> Iterator[Settings]:
    """The shared stack's settings, pointed to a migrated database of the test's own."""
    with _new_database(stack_settings, migrated_template) as settings:
        yield settings


@pytest.fixture
def another_store(store_settings: Settings) -> Iterator[Callable[[], Store]]:
    """Opens the store as another process would."""
    with ExitStack() as stores:
        yield lambda: stores.enter_context(open_store(store_settings))


@pytest.fixture
def store(another_store: Callable[[], Store]) -> Store:
    return another_store()


@pytest.fixture
def archive_settings(store_settings: Settings, tmp_path: Path) -> Settings:
    """A page archive of the test's own, in few parts: each costs a task of Spark."""
    pages = PagesSettings(url=str(tmp_path / "pages"), buckets=4)
    return store_settings.model_copy(update={"pages": pages})


@pytest.fixture
def archive(archive_settings: Settings) -> Iterator[PageArchive]:
    with open_archive(archive_settings) as opened:
        yield opened


@pytest.fixture
def log(archive: PageArchive) -> WrittenLog:
    return WrittenLog(archive)


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
def remote_spark(
    stack_settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Settings]:
    """A Spark Connect server: a killed client leaves it, and whatever it was doing, running.

    It stands in a stack of its own: commands of other tests would find it, and can't use it beside
    the session that their process has.
    """
    folder = tmp_path_factory.mktemp("remote-spark")
    own = stack_settings.model_copy(
        update={"stack": stack_settings.stack.model_copy(update={"folder": folder})}
    )
    with stack.running(own, services=("spark",)) as attached:
        yield attached


@pytest.fixture
def live(spark: SparkSession, archive: PageArchive) -> PageArchive:
    """The archive of a small fleet whose live rows are what its log says."""
    enter_fleet(spark, archive)
    return archive


@pytest.fixture
def pipeline_settings(store_settings: Settings, tmp_path: Path) -> Settings:
    """The shared broker, a database and an archive of the test's own, and nothing to read yet."""
    create_topics(store_settings, load_catalogue())
    settings = store_settings.model_copy(
        update={"pages": PagesSettings(url=str(tmp_path / "pages"), settle_seconds=0.05)}
    )
    skip_what_others_left(settings)
    return settings


@pytest.fixture
def registry(store_settings: Settings) -> Iterator[Registry]:
    """A registry with a snapshot topic of its own."""
    create_topics(store_settings, load_catalogue())
    with open_registry(store_settings) as opened:
        yield opened


@pytest.fixture
def piped(pipeline_settings: Settings) -> Iterator[Watched]:
    """Connected to the broker, with nothing to read there yet."""
    with open_watched(pipeline_settings) as opened:
        yield opened
