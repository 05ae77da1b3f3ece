"""`onex registry`: what it prints, what it refuses, and its exit codes, on real servers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import pytest
from click.testing import CliRunner

from onex_platform.base.settings import address_variables
from onex_platform.cli.main import main
from onex_platform.domain.order import position_at
from onex_platform.ingest.archive import PageArchive
from onex_platform_tests.support.events import TENANT, at
from onex_platform_tests.support.folded_logs import rows_of
from onex_platform_tests.support.live_registry import (
    LIVE_TABLES,
    NODES,
    damage,
    execute,
    node,
    physical,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.servers


class Run(NamedTuple):
    code: int
    out: str
    err: str


def onex(archive: PageArchive, *arguments: str, answer: str | None = None) -> Run:
    """The command as a shell runs it, errors and exit code included."""
    variables = address_variables(archive.settings) | {
        "ONEX_PAGES_URL": archive.log.store.url,
        "ONEX_PAGES_BUCKETS": str(archive.log.buckets),
        "ONEX_SPARK_MASTER": "local[2]",
    }
    code: Any = 0
    with CliRunner().isolation(input=answer, env=variables) as (out, err, _):
        try:
            main(["registry", *arguments])
        except SystemExit as end:
            code = end.code
        return Run(code, out.getvalue().decode(), err.getvalue().decode())


def show(archive: PageArchive, *arguments: str) -> Any:
    run = onex(archive, *arguments, "--json")
    assert run.code == 0, run
    return json.loads(run.out)


def test_a_node_is_shown_under_any_of_its_names(live: PageArchive) -> None:
    by_name = show(live, "show", "node-1", "--tenant", TENANT)
    assert (by_name["node_name"], by_name["current_state"]) == ("node-1", "active")
    assert by_name["entity_id"] == str(node(1))
    assert show(live, "show", f"{{{str(node(1)).upper()}}}") == by_name
    text = onex(live, "show", str(node(1)))
    assert "current state                 active" in text.out
    closed = show(live, "show", f"node-{NODES - 1}", "--tenant", TENANT)
    assert closed["deregistered_at"] is not None


def test_a_node_that_nobody_knows_is_exit_code_1(live: PageArchive) -> None:
    assert onex(live, "show", "stranger") == (1, "", "stranger is not known.\n")
    assert onex(live, "show", "node-1", "--tenant", "elsewhere").code == 1
    refused = onex(live, "show", "")
    assert (refused.code, refused.out) == (2, "")
    assert "node_id is empty; a node needs an id of 1 to 256 characters." in refused.err


def test_a_node_that_is_set_aside_says_so(live: PageArchive) -> None:
    before = show(live, "show", str(node(1)))
    for aside in (node(1), UUID(int=7)):
        execute(
            live,
            "INSERT INTO set_aside_nodes (domain, entity_id, since_position, event_id, kind, error)"
            " VALUES ('registration', %s, %s, %s, 'node.ack.published', 'ValueError: odd')",
            aside,
            position_at(at(50)),
            UUID(int=5),
        )
    shown = show(live, "show", str(node(1)))
    assert shown.pop("set_aside") == {
        "since": at(50).isoformat(),
        "event_id": str(UUID(int=5)),
        "kind": "node.ack.published",
        "error": "ValueError: odd",
    }
    assert shown == before
    text = onex(live, "show", str(node(1)))
    assert "are not folded" in text.err and "ValueError: odd" in text.err
    unknown = onex(live, "show", str(UUID(int=7)))
    assert (unknown.code, "ValueError: odd" in unknown.err) == (1, True)
    assert list(show(live, "list")["set_aside"]) == [str(node(1))]
    [line] = [line for line in onex(live, "list").out.splitlines() if str(node(1)) in line]
    assert "active *" in line


def test_the_list_goes_on_page_by_page_and_filters(live: PageArchive) -> None:
    seen: list[str] = []
    going_on: list[str] = []
    for _ in range(NODES):
        page = show(live, "list", "--limit", "5", *going_on)
        seen += [row["entity_id"] for row in page["items"]]
        if page["next_cursor"] is None:
            break
        going_on = ["--cursor", page["next_cursor"]]
    open_nodes = {str(key.entity_id) for key in rows_of(live)} - {str(node(NODES - 1))}
    assert sorted(seen) == sorted(open_nodes)
    table = onex(live, "list", "--limit", "5")
    assert len(table.out.splitlines()) == 6
    assert "There are more; go on with --cursor '[" in table.err
    every = show(live, "list", "--include-deregistered", "--tenant", TENANT)
    assert len(every["items"]) == NODES
    assert len(show(live, "list", "--state", "active", "--type", "effect")["items"]) == NODES - 1
    for nobody in (("--state", "rejected"), ("--tenant", "nobody"), ("--capability", "telepathy")):
        assert show(live, "list", *nobody)["items"] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["list", "--cursor", "[1]"], "cursor='[1]' does not belong to this list."),
        (["list", "--state", "asleep"], "'asleep' is not one of"),
        (["list", "--limit", "0"], "0 is not in the range"),
        (["as-of", "yesterday"], "'yesterday' is no time; write it like 2026-03-01T12:00:00Z."),
        (["as-of", "2026-03-01T12:00:00"], "has no time zone; add Z for UTC."),
        (["as-of", "0001-01-01T00:00:00+05:00"], "is outside of the log"),
        (["as-of", "2026-03-01T12:00:00Z", "--tenant", "acme"], "A tenant only tells whose node"),
        (["as-of", "2026-03-01T12:00:00Z", "--node", "a", "--rows"], "--rows is about the fleet"),
        (["rebuild", "--tenant", "acme"], "A tenant only tells whose node is meant."),
        (["rebuild", "--node", "\x07"], "holds control characters; use printable text."),
        (
            ["rebuild", "--node", "a", "--since", "2026-03-01T12:00:00Z"],
            "A node and a time window exclude each other; give one.",
        ),
        (
            ["rebuild", "--since", "2026-03-01T12:00:00Z", "--until", "2026-03-01T12:00:00Z"],
            "The window's end 2026-03-01T12:00:00+00:00 is not after its start 2026-03-01",
        ),
        (["prove", "--sample", "0"], "0 is not in the range"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_reason(
    archive: PageArchive, arguments: list[str], message: str
) -> None:
    run = onex(archive, *arguments)
    assert (run.code, run.out) == (2, "")
    assert message in " ".join(run.err.split())


def test_as_of_tells_the_state_of_a_node_and_of_the_fleet_then(
    spark: SparkSession, live: PageArchive
) -> None:
    moment = at(4.5).isoformat()  # five nodes have introspected, four acknowledged
    one = show(live, "as-of", moment, "--node", "node-4", "--tenant", TENANT)
    assert one["current_state"] == "awaiting_ack"
    assert "row_version" not in one
    unknown = onex(live, "as-of", moment, "--node", "node-5", "--tenant", TENANT)
    assert unknown == (1, "", "node-5 is not known.\n")
    counts = show(live, "as-of", moment)
    assert {state: n for state, n in counts.items() if n} == {"awaiting_ack": 1, "active": 4}
    assert "awaiting ack                  1" in onex(live, "as-of", moment).out
    rows = onex(live, "as-of", moment, "--rows", "--json").out.splitlines()
    assert {UUID(json.loads(row)["entity_id"]) for row in rows} == {node(n) for n in range(5)}
    assert len(onex(live, "as-of", moment, "--rows").out.splitlines()) == 6
    future = onex(live, "as-of", "2100-01-01T00:00:00Z", "--node", "node-1")
    assert (future.code, future.out) == (1, "")
    assert "is not known yet: the log is folded up to" in future.err


def test_a_dry_run_shows_the_differences_and_changes_nothing(
    spark: SparkSession, live: PageArchive
) -> None:
    assert show(live, "rebuild", "--dry-run")["equal"] == NODES
    damage(live)
    before = physical(live, *LIVE_TABLES)
    run = onex(live, "rebuild", "--dry-run")
    assert run.code == 1
    assert f"differing  {node(1)}  node_version: wrong → None" in run.out
    printed = json.loads(onex(live, "rebuild", "--dry-run", "--json").out)
    counts = [printed[name] for name in ("equal", "differing", "missing", "extra", "moved_on")]
    assert counts == [NODES - 3, 2, 1, 1, 0]
    assert len(printed["differences"]) == 4
    proved = onex(live, "prove")
    assert proved.code == 1
    assert proved.err.startswith("4 rows are not what the log says: ")
    assert physical(live, *LIVE_TABLES) == before


def test_a_proof_that_fails_for_the_outcomes_alone_says_so(
    spark: SparkSession, live: PageArchive
) -> None:
    execute(live, "UPDATE batch_outcomes SET applied = applied - 1, stale = stale + 1")
    proved = onex(live, "prove")
    assert proved.code == 1
    assert f"{NODES} rows are what the log says. The log came to" in proved.err
    assert "0 stale" in proved.err.partition("but to")[0]
    assert "1 stale" in proved.err.partition("but to")[2]
    assert onex(live, "prove", "--sample", "3").code == 0  # of a part nothing is recorded


def test_a_rebuild_asks_first_and_changes_what_was_shown(
    spark: SparkSession, live: PageArchive
) -> None:
    damage(live)
    before = physical(live, *LIVE_TABLES)
    refused = onex(live, "rebuild", answer="n\n")
    assert "Change up to 4 rows?" in refused.err
    assert refused.code != 0
    assert physical(live, *LIVE_TABLES) == before
    one = onex(live, "rebuild", "--node", "node-1", "--tenant", TENANT, "--yes")
    assert (one.code, one.err) == (0, "1 rows changed.\n")
    window = ["--since", at(2).isoformat(), "--until", at(4).isoformat()]
    touched = onex(live, "rebuild", *window, "--yes")
    assert (touched.code, touched.err) == (0, "2 rows changed.\n")
    rest = onex(live, "rebuild", answer="y\n")
    assert rest.code == 0
    assert rest.err.endswith("1 rows changed.\n")
    again = onex(live, "rebuild")
    assert (again.code, again.err) == (0, "")
    assert onex(live, "prove").code == 0


def test_a_rebuild_that_can_not_read_the_log_says_which_page(
    spark: SparkSession, live: PageArchive
) -> None:
    page = next(iter(live.log.table.pages()))
    live.log.store.delete(page.key)
    run = onex(live, "rebuild", "--yes")
    assert (run.code, run.out) == (1, "")
    assert f"{page.key} (positions {page.metadata.min_position}" in run.err
    assert "Nothing was changed." in run.err
