"""Every table has one owning station: only its code has SQL about the table, others call it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from onex_platform_tests.support.source_tree import PACKAGE, ROOT, Module, modules_of

# The station of every table and view, in the order of the data.
OWNERS = {
    table: station
    for station, tables in {
        "engines": "leases",
        "migration": "topic_migrations migration_changes migrated_groups mirror_positions"
        " retired_topics",
        "log": "logs pages log_pins held_log_pins",
        "ingest": "log_heads log_cuts cut_ranges consumer_cursors offset_restarts lost_ranges"
        " event_ledger ledger_floors fact_inbox parked_records staged_ids staged_parked"
        " header_findings handler_letters handler_letter_positions",
        "capture": "capture_pages capture_page_writers capture_replaced_pages"
        " capture_relay_cursors capture_relay_marks",
        "projections": "registration_projections registration_liveness registrations fold_cursors"
        " batch_outcomes illegal_events outbox held_publications published_ack_requests"
        " handed_projections handed_liveness handed_facts handed_refusals handed_set_aside"
        " set_aside_nodes retired_versions verified_accounts registration_history replaced_history"
        " rebuilds rebuilt_registrations",
        "deadlines": "deadline_watches scan_positions declared_expiries expiry_holds"
        " guard_overrides",
        "snapshots": "publication_times",
        "pipeline": "proofs",
        "health": "health_measurements alerts alert_silences introspection_broadcasts"
        " canary_lives canary_samples canary_groups canary_troubles lease_beats"
        " canary_probes",
    }.items()
    for table in tables.split()
}
_CREATED = re.compile(r"CREATE (?:UNLOGGED )?(?:TABLE|VIEW) (\w+)")
_NAMED = re.compile(r"\b(?:FROM|JOIN|INTO|UPDATE|COPY|TRUNCATE|TABLE)\s+(\w+)")


class Mention(NamedTuple):
    """A table in the SQL of a module."""

    path: str
    station: str
    table: str

    def __str__(self) -> str:
        return f"{self.path} has SQL about {self.table}, which belongs to {OWNERS[self.table]}"


def _tables_in(module: Module) -> set[str]:
    """Tables behind a keyword of SQL, and those whose name stands alone, to be put into SQL."""
    found = set()
    for text in module.strings():
        found |= set(_NAMED.findall(text)) & OWNERS.keys()
        if "_" in text and text in OWNERS:
            found.add(text)
    return found


def _mentions() -> Iterator[Mention]:
    for module in modules_of(PACKAGE):
        if module.station:  # at the top there is no SQL, but assets that are called as tables are
            for table in sorted(_tables_in(module)):
                yield Mention(module.path, module.station, table)


def test_every_table_of_the_schema_has_an_owner() -> None:
    created = {
        table
        for file in (ROOT / "sql").glob("*.sql")
        for table in _CREATED.findall(file.read_text())
    }
    dropped = {
        table
        for file in (ROOT / "sql").glob("*.sql")
        for table in re.findall(r"DROP (?:TABLE|VIEW) (\w+)", file.read_text())
    }
    assert created - dropped == OWNERS.keys()


def test_only_the_owner_has_sql_about_a_table() -> None:
    foreign = [str(mention) for mention in _mentions() if mention.station != OWNERS[mention.table]]
    assert foreign == []


def test_sql_is_found_in_plain_text_and_in_parts_of_it() -> None:
    source = 'a = "DELETE FROM outbox"\nb = f"SELECT {a} FROM pages"\nc = copy("staged_ids")'
    module = Module("onex_platform/cli/x.py", ast.parse(source))
    assert _tables_in(module) == {"outbox", "pages", "staged_ids"}
