"""`onex dlt`: what it prints, what it refuses, and its exit codes, on real servers."""

from __future__ import annotations

import base64
import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from click.testing import CliRunner, Result

from onex_platform.base.settings import address_variables
from onex_platform.base.telemetry import REDACTED
from onex_platform.cli import opening
from onex_platform.cli.flow_commands import dlt
from onex_platform.cli.main import cli
from onex_platform.domain.events import EnumEventKind
from onex_platform.ingest.archive import PageArchive
from onex_platform.projections.fold.set_aside import marks
from onex_platform.topics.catalogue import Catalogue, load_catalogue
from onex_platform_tests.support.broken_folds import (
    KEY,
    NODES,
    SICK,
    Fleet,
    announcing,
    break_machine,
    broken,
)
from onex_platform_tests.support.dead_letters import forget_ids_before, park
from onex_platform_tests.support.events import at, number_id, record
from onex_platform_tests.support.folded_logs import replayed, rows_of
from onex_platform_tests.support.live_registry import joining, physical
from onex_platform_tests.support.spark_tasks import IN_THIS_PROCESS

pytestmark = pytest.mark.servers

Kind = EnumEventKind
TOPIC = load_catalogue().for_kind(Kind.NODE_INTROSPECTION).topic
TABLES = ("parked_records", "fact_inbox")


def onex(archive: PageArchive, *arguments: str, answer: str | None = None) -> Result:
    variables = address_variables(archive.settings) | {
        "ONEX_PAGES_URL": archive.log.store.url,
        "ONEX_PAGES_BUCKETS": str(archive.log.buckets),
    }
    return CliRunner().invoke(cli, ["dlt", *arguments], env=variables, input=answer)


def refusal(archive: PageArchive, *arguments: str) -> str:
    error: Any = onex(archive, *arguments).exception
    return f"{error.message} {error.hint}"


@pytest.fixture
def parked(archive: PageArchive) -> PageArchive:
    """Two letters that can be read today, one that can't, one that the ledger has forgotten."""
    forget_ids_before(archive, at(-1000))
    park(
        archive,
        [
            record(Kind.NODE_INTROSPECTION, topic=TOPIC, offset=n, node_id=f"node-{n}")
            for n in (1, 2)
        ],
        "unknown_version",
    )
    park(
        archive,
        [
            record(
                Kind.NODE_INTROSPECTION,
                topic=TOPIC,
                offset=3,
                value=b"\x1b[31m{",
                headers={"a": b"\xff"},
            ),
            record(
                Kind.NODE_INTROSPECTION,
                topic=TOPIC,
                offset=4,
                envelope={"timestamp": at(-2000).isoformat()},
            ),
        ],
    )
    return archive


def test_letters_are_listed_shown_and_exported(parked: PageArchive, tmp_path: Path) -> None:
    listed = onex(parked, "list").output
    assert f"{TOPIC}/0/1  waiting  unknown_version: it is odd" in listed
    assert len(listed.splitlines()) == 4
    assert len(onex(parked, "list", "--parked-for", "not_json").output.splitlines()) == 2
    assert "No letter is there" in onex(parked, "list", "--state", "purged").output
    short = onex(parked, "list", "--limit", "2")
    assert "There may be more than 2" in short.stderr
    shown = onex(parked, "show", f"{TOPIC}/0/3").output
    # An escape of somebody else's must not reach the terminal.
    assert r"\x1b[31m{" in shown and "\x1b[31m" not in shown
    assert r"a=\xff" in shown
    [first, *_] = json.loads(onex(parked, "list", "--json").stdout)["letters"]
    assert (first["letter"], first["state"]) == (f"{TOPIC}/0/1", "waiting")
    onex(parked, "export", "--output", str(tmp_path / "letters"), f"{TOPIC}/0/3")
    [line] = map(json.loads, (tmp_path / "letters").read_text().splitlines())
    assert base64.b64decode(line["value"]) == b"\x1b[31m{"
    assert line["headers"] == [["a", base64.b64encode(b"\xff").decode()]]


def test_a_private_value_is_hidden_on_screens(
    parked: PageArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = Catalogue(
        contract.with_private_fields({"payload.node_type": "high"})
        for contract in load_catalogue()
        if contract.topic == TOPIC
    )
    monkeypatch.setattr(opening, "load_catalogue", lambda: private)
    shown = json.loads(onex(parked, "show", f"{TOPIC}/0/1", "--json").stdout)
    payload = json.loads(shown["value"])["payload"]
    assert (payload["node_id"], payload["node_type"]) == ("node-1", REDACTED)


def test_what_a_replay_comes_to_is_foreseen_and_happens_once(parked: PageArchive) -> None:
    before = physical(parked, *TABLES)
    foreseen = onex(parked, "replay", "--all", "--preview", "--json")
    assert physical(parked, *TABLES) == before
    done = onex(parked, "replay", "--all", "--json", "--by", "ada")
    assert (foreseen.exit_code, done.exit_code) == (1, 1)  # some can't be read
    letters = json.loads(done.stdout)["letters"]
    assert letters == json.loads(foreseen.stdout)["letters"]
    assert [(item["verdict"], item["reason"]) for item in letters] == [
        ("enters", None),
        ("enters", None),
        ("unreadable", "not_json"),
        ("unreadable", "beyond_ledger"),
    ]
    assert "it may be a duplicate" in letters[3]["detail"]
    before = physical(parked, *TABLES)
    again = onex(parked, "replay", "--all")
    assert "0 enters, 0 duplicate, 2 unreadable." in again.stderr
    assert physical(parked, *TABLES) == before
    assert onex(parked, "replay", f"{TOPIC}/0/1").exit_code == 0  # it is no letter any more
    shown = json.loads(onex(parked, "show", f"{TOPIC}/0/1", "--json").stdout)
    assert (shown["state"], shown["settled_by"]) == ("submitted", "ada")
    assert UUID(shown["event_id"]) == number_id(1)


def test_purging_asks_keeps_the_reason_and_takes_only_what_was_shown(parked: PageArchive) -> None:
    chosen = ("purge", "--parked-for", "not_json", "--because", "of no use", "--by", "ada")
    before = physical(parked, *TABLES)
    assert "would purge" in onex(parked, *chosen, "--preview").output
    assert onex(parked, *chosen, answer="n\n").exit_code == 1
    assert physical(parked, *TABLES) == before
    assert "2 letters purged." in onex(parked, *chosen, "--yes").stderr
    [gone, _] = json.loads(onex(parked, "list", "--state", "purged", "--json").stdout)["letters"]
    assert (gone["settled_by"], gone["settled_because"]) == ("ada", "of no use")
    assert onex(parked, *chosen, "--yes").output == ""


def test_what_is_not_said_clearly_is_refused(parked: PageArchive) -> None:
    assert "No letter is named." in refusal(parked, "replay")
    assert "--all and a choice exclude each other." in refusal(
        parked, "replay", "--all", "--topic", TOPIC
    )
    assert "'nonsense' names no dead letter." in refusal(parked, "show", "nonsense")
    assert "No letter elsewhere/0/1 is there." in refusal(parked, "show", "elsewhere/0/1")
    assert onex(parked, "purge", "--all").exit_code == 2  # without a reason
    assert "is not set aside" in refusal(parked, "release", "node-1")


def test_a_node_that_is_set_aside_is_listed_and_released(
    archive: PageArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Where a test can break the code that tasks run.
    monkeypatch.setattr(dlt, "open_session", lambda *_: nullcontext(IN_THIS_PROCESS))
    fleet = Fleet(archive)
    fleet.cut(100, [item for n in range(NODES) for item in joining(n, n, 10 * n)])
    name, tenant = f"node-{SICK}", "omnibase"
    with broken(break_machine, fleet):
        fleet.cut(200, announcing(150, 1000))
        listed = onex(archive, "list").output
        assert f"{KEY.entity_id}  set aside" in listed
        assert "ZeroDivisionError: the machine breaks" in listed
        for preview in ((), ("--preview",)):
            still = onex(archive, "release", name, "--tenant", tenant, *preview)
            assert (still.exit_code, "still can't be folded" in still.stderr) == (1, True)
    can = onex(archive, "release", name, "--tenant", tenant, "--preview")
    assert (can.exit_code, can.stdout) == (0, f"{name} can be folded.\n")
    assert len(fleet.marks()) == 1
    assert onex(archive, "release", name, "--tenant", tenant).stdout == f"{name} goes on.\n"
    with archive.database.transaction() as cursor:
        assert marks(cursor, archive.domain) == []
    assert rows_of(archive)[KEY].domain_columns() == replayed(archive)[KEY].domain_columns()
