"""A small registry, and the ways in which code can break for one of its nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from onex_platform.domain import machine
from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.identity import EntityKey
from onex_platform.domain.payloads import IntrospectionPayload
from onex_platform.ingest.archive import PageArchive
from onex_platform.projections.fold import column_fold, node_state
from onex_platform.projections.fold.event_runs import Chunk
from onex_platform.projections.fold.reducer import FoldedBatch, fold_log, policy_of
from onex_platform.projections.fold.refold import Scope
from onex_platform.projections.fold.set_aside import SetAside, marks
from onex_platform.projections.reader import ProjectionReaderRegistration
from onex_platform.projections.rebuild.proof import ReplayProof, live_equals_replay
from onex_platform.projections.rebuild.rebuild import open_rebuild
from onex_platform.projections.rebuild.side_table import Comparison
from onex_platform.topics.catalogue import load_catalogue
from onex_platform_tests.support.events import at, record
from onex_platform_tests.support.folded_logs import replayed, take_cut
from onex_platform_tests.support.live_registry import execute, node
from onex_platform_tests.support.spark_tasks import IN_THIS_PROCESS

Kind = EnumEventKind
ERRORS = load_catalogue().for_kind(Kind.ERROR_DETECTED).topic
NODES, SICK = 6, 3
KEY = EntityKey("registration", node(SICK))
# The life in which the sick node is so; the machine that is broken breaks there.
POISON = 666


@dataclass(frozen=True)
class Fleet:
    """A small registry whose log and rows a test can look at."""

    archive: PageArchive

    def cut(self, seconds: float, records: list[Any]) -> FoldedBatch:
        """The pipeline takes another cut and folds it."""
        take_cut(self.archive, records, at(seconds))
        return self.fold()

    def fold(self) -> FoldedBatch:
        policy = policy_of(self.archive.settings)
        batch = fold_log(IN_THIS_PROCESS, self.archive.log, datetime.now(UTC), policy)
        assert batch is not None
        return batch

    def marks(self) -> list[SetAside]:
        with self.archive.database.transaction() as cursor:
            return marks(cursor, self.archive.domain)

    def proof(self) -> ReplayProof:
        return live_equals_replay(IN_THIS_PROCESS, self.archive.log)

    def rebuild(self, **scope: Any) -> Comparison:
        with open_rebuild(IN_THIS_PROCESS, self.archive.log, Scope(**scope)) as rebuild:
            return rebuild.swap()

    def counts(self) -> tuple[int, int, int]:
        with self.archive.database.transaction() as cursor:
            [row] = cursor.execute(
                "SELECT sum(read)::int AS read, sum(parked)::int AS parked,"
                " sum(set_aside)::int AS aside FROM batch_outcomes"
            ).fetchall()
        return row.read, row.parked, row.aside

    def others_are_as_the_log_says(self) -> None:
        expected = {key: row for key, row in replayed(self.archive).items() if key != KEY}
        reader = ProjectionReaderRegistration(self.archive.database)
        live = reader.get_many(key.entity_id for key in expected)
        assert {key: row.domain_columns() for key, row in live.items()} == {
            key: row.domain_columns() for key, row in expected.items()
        }


def announcing(seconds: float, offset: int, *who: int) -> list[Any]:
    """Every node describes itself anew and beats; the sick one begins its sick life."""
    return [
        item
        for n in who or range(NODES)
        for item in (
            record(
                Kind.NODE_INTROSPECTION,
                seconds,
                offset=offset + 10 * n,
                node_id=f"node-{n}",
                node_version="2.0",
                epoch=POISON if n == SICK else None,
            ),
            record(
                Kind.NODE_HEARTBEAT, seconds + 1, offset=offset + 10 * n + 1, node_id=f"node-{n}"
            ),
        )
    ]


def break_machine(patch: pytest.MonkeyPatch, _: Fleet) -> None:
    whole = machine.step

    def step(life: Any, kind: int, position: int, tenant: Any, epoch: Any, *rest: Any) -> int:
        if epoch == POISON:
            raise ZeroDivisionError("the machine breaks")
        return whole(life, kind, position, tenant, epoch, *rest)

    # Only the fold's: what it is compared with must go on.
    patch.setattr(column_fold, "machine", SimpleNamespace(**{**vars(machine), "step": step}))


def break_decider(patch: pytest.MonkeyPatch, _: Fleet) -> None:
    whole = column_fold.decide

    def decide(row: Any, event: Any, *rest: Any) -> Any:
        if event.entity == KEY:
            raise RecursionError("the decider breaks")
        return whole(row, event, *rest)

    patch.setattr(column_fold, "decide", decide)


def break_rows(patch: pytest.MonkeyPatch, _: Fleet) -> None:
    whole = node_state.described

    def described(payload: IntrospectionPayload, plain_id: str | None) -> Any:
        if plain_id == f"node-{SICK}" and "2.0" in payload.model_dump_json():
            raise KeyError("the row\x00breaks")
        return whole(payload, plain_id)

    patch.setattr(node_state, "described", described)


def break_columns(patch: pytest.MonkeyPatch, _: Fleet) -> None:
    whole = Chunk.steps

    def steps(chunk: Chunk, *done: Any) -> Any:
        if KEY.entity_id.bytes in chunk.entity_ids and "2.0" in str(chunk.changes["payload"]):
            raise OverflowError("the columns break")
        return whole(chunk, *done)

    patch.setattr(Chunk, "steps", steps)


def break_facts(patch: pytest.MonkeyPatch, _: Fleet) -> None:
    whole = column_fold.fact_table

    def fact_table(events: Any) -> Any:
        events = list(events)
        if any(event.entity == KEY for event in events):
            raise OverflowError("the page of facts breaks")
        return whole(events)

    patch.setattr(column_fold, "fact_table", fact_table)


def break_staging(patch: pytest.MonkeyPatch, fleet: Fleet) -> None:
    check = f"CHECK (node_name <> 'node-{SICK}' OR node_version <> '2.0')"
    for table in ("handed_projections", "rebuilt_registrations"):
        execute(fleet.archive, f"ALTER TABLE {table} ADD CONSTRAINT refusing {check}")


def break_stored_row(patch: pytest.MonkeyPatch, fleet: Fleet) -> None:
    execute(
        fleet.archive,
        "UPDATE registration_projections SET capabilities = '{\"max_concurrent_requests\": -1}'"
        " WHERE entity_id = %s",
        KEY.entity_id,
    )


Break = Callable[[pytest.MonkeyPatch, Fleet], None]
# What breaks, what is said of it, and whether a replay breaks as well.
WAYS: dict[str, tuple[Break, str, bool]] = {
    "machine": (break_machine, "ZeroDivisionError: the machine breaks", True),
    "decider": (break_decider, "RecursionError: the decider breaks", False),
    "row": (break_rows, r"KeyError: 'the row\x00breaks'", True),
    "columns": (break_columns, "OverflowError: the columns break", True),
    "facts": (break_facts, "OverflowError: the page of facts breaks", False),
    "staging": (break_staging, "CheckViolation", True),
    "stored row": (break_stored_row, "ValidationError", False),
}


@contextmanager
def broken(way: Break, fleet: Fleet) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        way(patch, fleet)
        yield
    for table in ("handed_projections", "rebuilt_registrations"):
        execute(fleet.archive, f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS refusing")
