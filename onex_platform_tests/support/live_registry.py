"""A small registry with live rows, a log beside them, and ways to spoil the rows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.identity import identify_node
from onex_platform.ingest.archive import PageArchive
from onex_platform.projections.fold.reducer import fold_log, policy_of
from onex_platform_tests.support.events import TENANT, at, record
from onex_platform_tests.support.folded_logs import rows_of, take_cut

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Kind = EnumEventKind
NODES = 12
LIVE_TABLES = ("registration_projections", "registration_liveness", "outbox", "fact_inbox")


def node(number: int) -> UUID:
    return identify_node(f"node-{number}", TENANT).entity_id


def execute(archive: PageArchive, statement: str, *parameters: Any) -> None:
    with archive.database.transaction() as cursor:
        cursor.execute(statement, parameters)


def physical(archive: PageArchive, *tables: str) -> dict[str, list[str]]:
    """Every row of the tables with its place and its writer: any write at all shows."""
    with archive.database.transaction() as cursor:
        return {
            table: [
                row.line
                for row in cursor.execute(
                    f"SELECT t.ctid::text || t.xmin || t AS line FROM {table} AS t"  # noqa: S608
                )
            ]
            for table in tables
        }


def fold(spark: SparkSession, archive: PageArchive) -> bool:
    """Fold what the log has beyond the rows; whether there was something."""
    batch = fold_log(spark, archive.log, datetime.now(UTC), policy_of(archive.settings))
    return batch is not None and batch.committed


def go_on(spark: SparkSession, archive: PageArchive, seconds: float, records: list[Any]) -> None:
    """The pipeline takes another cut and folds it."""
    take_cut(archive, records, at(seconds))
    assert fold(spark, archive)


def joining(number: int, seconds: float, offset: int) -> list[Any]:
    name = f"node-{number}"
    return [
        record(Kind.NODE_INTROSPECTION, seconds, offset=offset, node_id=name),
        record(Kind.NODE_ACK, seconds + 1, offset=offset + 1, node_id=name),
        record(Kind.NODE_HEARTBEAT, seconds + 2, offset=offset + 2, node_id=name),
    ]


def damage(archive: PageArchive) -> None:
    """One row of each kind that can be wrong: changed, late, lost, invented."""
    execute(
        archive,
        "UPDATE registration_projections SET node_version = 'wrong', row_version = 40"
        " WHERE entity_id = %s",
        node(1),
    )
    execute(
        archive,
        "UPDATE registration_liveness SET last_heartbeat_at = '2020-01-01Z' WHERE entity_id = %s",
        node(2),
    )
    execute(archive, "DELETE FROM registration_projections WHERE entity_id = %s", node(3))
    execute(
        archive,
        "INSERT INTO registration_projections SELECT (jsonb_populate_record(p,"
        " jsonb_build_object('entity_id', %s::text))).* FROM registration_projections AS p"
        " WHERE entity_id = %s",
        str(INVENTED),
        node(4),
    )


INVENTED = uuid4()


def enter_fleet(spark: SparkSession, archive: PageArchive) -> None:
    """A small fleet whose live rows are what its log says; the last node has shut down."""
    records = [item for n in range(NODES) for item in joining(n, n, 10 * n)]
    records.append(record(Kind.NODE_SHUTDOWN, 90, offset=900, node_id=f"node-{NODES - 1}"))
    # A node that never introspected: the log names it, but it has no row.
    records.append(record(Kind.NODE_HEARTBEAT, 91, offset=901, node_id="stranger"))
    go_on(spark, archive, 100, records)
    assert len(rows_of(archive)) == NODES
