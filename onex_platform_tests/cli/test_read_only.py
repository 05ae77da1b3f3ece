"""A question does not write: dry runs and status commands work in a database that may only be read.

Two ask by writing on purpose, and stay out: `onex registry prove` and `onex registry rebuild
--dry-run` fold the log into a side table of their own, which is gone afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import psycopg
import pytest
from click.testing import CliRunner
from pydantic import SecretStr
from sqlalchemy.engine import make_url

from onex_platform.base.settings import Settings, address_variables
from onex_platform.cli.main import cli
from onex_platform.deadlines.scan import is_due, note_watch, scan
from onex_platform.ingest.archive import PageArchive
from onex_platform.pipeline import status
from onex_platform.projections import checks, reconciliation
from onex_platform.projections.backlog import measure_backlog
from onex_platform.snapshots.publish.topic_setup import ensure_topic
from onex_platform.snapshots.topic_config import ModelSnapshotTopicConfig
from onex_platform.topics.catalogue import load_catalogue
from onex_platform_tests.support.archives import open_archive
from onex_platform_tests.support.watched_clock import MINUTE, Watched, open_watched
from onex_platform_tests.support.written_logs import WrittenLog

pytestmark = pytest.mark.servers

COMMANDS = (
    "alerts list --all",
    "alerts numbers --now",
    "alerts rules",
    "alerts audit",
    "status",
    "db status",
    "deadlines scan --dry-run",
    "deadlines status",
    "deadlines holds --all",
    "deadlines audit",
    "dlt list --state any",
    "dlt replay --all --preview",
    "dlt export",
    "migrate status",
    "pages stats",
    "pages compact --dry-run",
    "pages sweep --dry-run",
    "pages verify --sample 10",
    "registry list",
    "snapshots status --contents",
    "snapshots sweep --dry-run",
    "snapshots topic --dry-run",
    "topics create --dry-run",
)


@pytest.fixture
def watched(pipeline_settings: Settings) -> Iterator[Watched]:
    """A log with pages to merge, and more silent nodes than may expire at once."""
    config = ModelSnapshotTopicConfig.default(load_catalogue(), pipeline_settings.environment)
    ensure_topic(pipeline_settings, load_catalogue(), config)
    now = datetime.now(UTC)
    with open_watched(pipeline_settings) as opened:
        WrittenLog(opened.archive).cuts(3)
        opened.active(100, now - 5 * MINUTE)
        opened.awaiting_ack(3, now - 5 * MINUTE, first=100)
        opened.watched_at(now)
        opened.folded_to(now)
        yield opened


@pytest.fixture
def read_only(watched: Watched) -> Settings:
    """Settings whose sessions may change nothing."""
    settings = watched.archive.settings
    assert settings.postgres.url is not None
    url = make_url(settings.postgres.url.get_secret_value()).update_query_dict(
        {"options": "-c default_transaction_read_only=on"}
    )
    address = SecretStr(url.render_as_string(hide_password=False))
    postgres = settings.postgres.model_copy(update={"url": address})
    return settings.model_copy(update={"postgres": postgres})


def test_dry_runs_and_status_commands_only_read(read_only: Settings) -> None:
    variables = address_variables(read_only) | {"ONEX_PAGES_URL": read_only.pages.url or ""}
    for command in COMMANDS:
        ran = CliRunner().invoke(cli, command.split(), env=variables)
        assert isinstance(ran.exception, SystemExit | None), (command, ran.exception)
        assert ran.exit_code in (0, 1), (command, ran.output)


def _dry_scan(archive: PageArchive, now: datetime) -> object:
    found = scan(archive.platform, now, dry_run=True)
    assert (found.expired, found.held) == (15, 85)
    return found


def _is_due(archive: PageArchive, now: datetime) -> object:
    assert is_due(archive.platform, now)
    return None


QUESTIONS: dict[str, Callable[[PageArchive, datetime], object]] = {
    "a dry scan": _dry_scan,
    "whether a scan is due": _is_due,
    "the accounts": lambda archive, now: reconciliation.look(archive.log, whole=True),
    "the backlog": lambda archive, now: measure_backlog(archive.platform),
    "the fold's lag": lambda archive, now: checks.fold_keeps_up(archive.platform, now),
    "who is set aside": lambda archive, now: checks.nobody_is_set_aside(archive.platform, now),
    "the whole status": lambda archive, now: status.look(archive.platform, now),
}


def test_functions_that_answer_a_question_only_read(read_only: Settings) -> None:
    with open_archive(read_only) as archive:
        for ask in QUESTIONS.values():
            ask(archive, datetime.now(UTC))


def test_what_has_to_be_noted_is_noted_by_a_call_named_for_it(
    watched: Watched, read_only: Settings
) -> None:
    with open_archive(read_only) as archive:
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            note_watch(archive.platform, datetime.now(UTC))
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            reconciliation.settle(archive.log, reconciliation.look(archive.log))
    before = watched.store.physical("deadline_watches")
    assert is_due(watched.archive.platform, datetime.now(UTC))
    assert watched.store.physical("deadline_watches") == before
    assert note_watch(watched.archive.platform, datetime.now(UTC))
    assert watched.store.physical("deadline_watches") != before
