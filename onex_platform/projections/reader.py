"""What orchestrators ask the registry: one node, nodes by state, kind, tenant or capability, the
overdue ones, counts, everything; and what each was at a moment of the past.

Lists come in pages: `next_cursor` continues where a page ended, whatever was written meanwhile.
Deregistered nodes are left out unless asked for, the canary unless asked for by its id. Deadlines
are strict: now must be past them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from uuid import UUID

import pyarrow as pa
from pydantic import BaseModel, ConfigDict
from pydantic_core import from_json, to_json

from onex_platform.base.errors import ConfigurationError
from onex_platform.domain.identity import NOT_CANARY_SQL, REGISTRATION_DOMAIN, EntityKey
from onex_platform.domain.projection import ModelRegistrationProjection
from onex_platform.domain.states import EnumNodeType, EnumRegistrationState
from onex_platform.engines.postgres.columns import read_table
from onex_platform.engines.postgres.database import Database
from onex_platform.log.page_log import PageLog
from onex_platform.projections.fold.row_columns import STATE_SCHEMA
from onex_platform.projections.fold.set_aside import SetAside, marks
from onex_platform.projections.history import as_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAX_PAGE = 10_000

_COLUMNS = ", ".join(ModelRegistrationProjection.model_fields)
_SELECT = f"SELECT {_COLUMNS} FROM registrations"  # noqa: S608 - the model's own field names
_STATES = (
    f"SELECT {', '.join(STATE_SCHEMA.names)} FROM registrations"  # noqa: S608 - as above
    " WHERE domain = %(domain)s AND entity_id = ANY(%(ids)s)"
)
_OPEN = "deregistered_at IS NULL"


class ModelRegistrationPage(BaseModel):
    """Some rows, and where to go on; no cursor means that there is no more."""

    model_config = ConfigDict(frozen=True)

    items: tuple[ModelRegistrationProjection, ...]
    next_cursor: str | None = None


class PageRequest(NamedTuple):
    """Which part of a list is wanted."""

    limit: int = 100
    cursor: str | None = None
    include_deregistered: bool = False


FIRST_PAGE = PageRequest()


class RegistrationFilter(NamedTuple):
    """Which nodes are wanted; what is not given does not matter."""

    state: EnumRegistrationState | None = None
    node_type: EnumNodeType | None = None
    tenant: str | None = None
    capability: str | None = None  # a flag that is true, an operation or a protocol


# The columns that a list is sorted by, the last one unique, and how a cursor's text is read back.
_Order = Mapping[str, Callable[[str], Any]]
_BY_ID: _Order = {"entity_id": UUID}
_BY_ACK_DEADLINE: _Order = {"ack_deadline": datetime.fromisoformat, **_BY_ID}
_BY_LIVENESS_DEADLINE: _Order = {"liveness_deadline": datetime.fromisoformat, **_BY_ID}


class ProjectionReaderRegistration:
    """Reads registration projections; never writes.

    What was the state at a moment of the past, it reads from the log: give it the log for that.
    """

    def __init__(self, database: Database, log: PageLog | None = None) -> None:
        self._database = database
        self._log = log

    @classmethod
    def of(cls, log: PageLog) -> Self:
        """A reader of a log's domain, now and then."""
        return cls(log.database, log)

    def get_entity_state(
        self,
        entity_id: UUID,
        domain: str = REGISTRATION_DOMAIN,
        *,
        include_deregistered: bool = False,
    ) -> ModelRegistrationProjection | None:
        """The row of one node."""
        conditions = ["domain = %(domain)s", "entity_id = %(id)s"]
        query = _query(conditions if include_deregistered else [*conditions, _OPEN])
        rows = self._rows(query, {"domain": domain, "id": entity_id})
        return rows[0] if rows else None

    def get_entity_state_as_of(
        self, entity_id: UUID, moment: datetime, *, include_deregistered: bool = False
    ) -> ModelRegistrationProjection | None:
        """The row that a node had at a moment; None if it was unknown then."""
        row = as_of.node_as_of(self._past(), moment, entity_id)
        return None if row is None or (row.is_closed() and not include_deregistered) else row

    def iter_all_as_of(
        self, spark: SparkSession, moment: datetime, *, include_deregistered: bool = False
    ) -> Iterator[ModelRegistrationProjection]:
        """Every row as it was at a moment, folded on Spark."""
        rows = as_of.iter_fleet(as_of.fleet_as_of(spark, self._past(), moment))
        return (row for row in rows if include_deregistered or not row.is_closed())

    def count_by_state_as_of(
        self, spark: SparkSession, moment: datetime
    ) -> dict[EnumRegistrationState, int]:
        """How many nodes were in each state at a moment; every state is there, also with none."""
        counts = as_of.count_by_state(as_of.fleet_as_of(spark, self._past(), moment))
        return {state: counts[state] for state in EnumRegistrationState}

    def get_registration_status(
        self, entity_id: UUID, domain: str = REGISTRATION_DOMAIN
    ) -> EnumRegistrationState | None:
        """The state of one node, None if it is unknown or deregistered."""
        with self._database.transaction() as cursor:
            row = cursor.execute(
                "SELECT current_state FROM registrations"
                " WHERE domain = %s AND entity_id = %s AND deregistered_at IS NULL",
                [domain, entity_id],
            ).fetchone()
        return None if row is None else EnumRegistrationState(row.current_state)

    def get_set_aside(
        self, entity_ids: Collection[UUID] | None = None, domain: str = REGISTRATION_DOMAIN
    ) -> dict[UUID, SetAside]:
        """Of some nodes or of all, those whose rows stand still: since when, and why."""
        with self._database.transaction() as cursor:
            return {mark.entity_id: mark for mark in marks(cursor, domain, entity_ids)}

    def get_many(
        self, entity_ids: Iterable[UUID], domain: str = REGISTRATION_DOMAIN
    ) -> dict[EntityKey, ModelRegistrationProjection]:
        """The rows that a batch folds onto, deregistered ones included."""
        query = _query(["domain = %(domain)s", "entity_id = ANY(%(ids)s)"])
        rows = self._rows(query, {"domain": domain, "ids": list(entity_ids)})
        return {row.key: row for row in rows}

    def columns_of(
        self, entity_ids: Iterable[bytes], domain: str = REGISTRATION_DOMAIN
    ) -> pa.Table:
        """The same rows as columns."""
        nodes = [UUID(bytes=entity_id) for entity_id in entity_ids]
        if not nodes:
            return STATE_SCHEMA.empty_table()
        with self._database.transaction() as cursor:
            bound = {"domain": domain, "ids": nodes}
            return read_table(cursor, _STATES, bound, STATE_SCHEMA)

    def find(
        self,
        wanted: RegistrationFilter,
        domain: str = REGISTRATION_DOMAIN,
        page: PageRequest = FIRST_PAGE,
    ) -> ModelRegistrationPage:
        """Nodes that are all of what is wanted."""
        conditions, parameters = _conditions(wanted)
        return self._page(" AND ".join(conditions) or "true", parameters, domain, page)

    def get_by_state(
        self,
        state: EnumRegistrationState,
        domain: str = REGISTRATION_DOMAIN,
        page: PageRequest = FIRST_PAGE,
    ) -> ModelRegistrationPage:
        return self.find(RegistrationFilter(state=state), domain, page)

    def get_by_type(
        self,
        node_type: EnumNodeType,
        domain: str = REGISTRATION_DOMAIN,
        page: PageRequest = FIRST_PAGE,
    ) -> ModelRegistrationPage:
        return self.find(RegistrationFilter(node_type=node_type), domain, page)

    def get_by_tenant(
        self, tenant: str, domain: str = REGISTRATION_DOMAIN, page: PageRequest = FIRST_PAGE
    ) -> ModelRegistrationPage:
        return self.find(RegistrationFilter(tenant=tenant), domain, page)

    def get_by_capability(
        self, name: str, domain: str = REGISTRATION_DOMAIN, page: PageRequest = FIRST_PAGE
    ) -> ModelRegistrationPage:
        return self.find(RegistrationFilter(capability=name), domain, page)

    def get_overdue_ack_registrations(
        self, now: datetime, domain: str = REGISTRATION_DOMAIN, page: PageRequest = FIRST_PAGE
    ) -> ModelRegistrationPage:
        """Nodes that did not acknowledge in time and have no timeout fact yet, longest first."""
        condition = "ack_deadline < %(now)s AND ack_timeout_emitted_at IS NULL"
        return self._page(condition, {"now": now}, domain, page, _BY_ACK_DEADLINE)

    def get_overdue_liveness_registrations(
        self, now: datetime, domain: str = REGISTRATION_DOMAIN, page: PageRequest = FIRST_PAGE
    ) -> ModelRegistrationPage:
        """Nodes that have been silent too long and have no expiry fact yet, longest first."""
        condition = "liveness_deadline < %(now)s AND liveness_timeout_emitted_at IS NULL"
        return self._page(condition, {"now": now}, domain, page, _BY_LIVENESS_DEADLINE)

    def count_by_state(self, domain: str = REGISTRATION_DOMAIN) -> dict[EnumRegistrationState, int]:
        """How many nodes are in each state; every state is there, also with none."""
        counts = dict.fromkeys(EnumRegistrationState, 0)
        with self._database.transaction() as cursor:
            rows = cursor.execute(
                "SELECT current_state, count(*) AS nodes FROM registrations"  # noqa: S608
                f" WHERE domain = %s AND {_OPEN} AND {NOT_CANARY_SQL} GROUP BY current_state",
                [domain],
            )
            counts.update({EnumRegistrationState(row.current_state): row.nodes for row in rows})
        return counts

    def iter_all(
        self, domain: str = REGISTRATION_DOMAIN, *, include_deregistered: bool = False
    ) -> Iterator[ModelRegistrationProjection]:
        """Every row as of one moment, in flat memory; end or close the iterator to free it."""
        conditions = ["domain = %(domain)s", NOT_CANARY_SQL]
        query = _query(conditions if include_deregistered else [*conditions, _OPEN])
        for row in self._database.stream(query, {"domain": domain}):
            yield _projection(row)

    def _past(self) -> PageLog:
        if self._log is None:
            raise ConfigurationError(
                "This reader has no log to read the past from.",
                hint="Open one, and make the reader by ProjectionReaderRegistration.of(log).",
            )
        return self._log

    def _page(
        self,
        condition: str,
        parameters: Mapping[str, Any],
        domain: str,
        page: PageRequest,
        order: _Order = _BY_ID,
    ) -> ModelRegistrationPage:
        if not 1 <= page.limit <= MAX_PAGE:
            raise ConfigurationError(f"limit={page.limit} is not between 1 and {MAX_PAGE}.")
        conditions = ["domain = %(domain)s", condition, NOT_CANARY_SQL]
        # One row more than asked tells whether there is a next page.
        bound = {**parameters, "domain": domain, "limit": page.limit + 1}
        if not page.include_deregistered:
            conditions.append(_OPEN)
        if page.cursor is not None:
            conditions.append(_after(order))
            bound |= _read_cursor(page.cursor, order)
        tail = f"ORDER BY {', '.join(order)} LIMIT %(limit)s"
        rows = self._rows(_query(conditions, tail), bound)
        items = tuple(rows[: page.limit])
        more = len(rows) > page.limit
        return ModelRegistrationPage(
            items=items, next_cursor=_write_cursor(items[-1], order) if more else None
        )

    def _rows(self, query: str, parameters: Mapping[str, Any]) -> list[ModelRegistrationProjection]:
        with self._database.transaction() as cursor:
            return [_projection(row) for row in cursor.execute(query, parameters)]


def _conditions(wanted: RegistrationFilter) -> tuple[list[str], dict[str, Any]]:
    columns = {
        "current_state": wanted.state,
        "node_type": wanted.node_type,
        "tenant": wanted.tenant,
    }
    parameters: dict[str, Any] = {name: value for name, value in columns.items() if value}
    conditions = [f"{name} = %({name})s" for name in parameters]
    if wanted.capability is not None:
        ways = {
            "flag": {wanted.capability: True},
            "operation": {"supported_operations": [wanted.capability]},
            "protocol": {"protocols": [wanted.capability]},
        }
        conditions.append(f"({' OR '.join(f'capabilities @> %({way})s::jsonb' for way in ways)})")
        parameters |= {way: to_json(document).decode() for way, document in ways.items()}
    return conditions, parameters


def _query(conditions: Iterable[str], tail: str = "") -> str:
    return f"{_SELECT} WHERE {' AND '.join(conditions)} {tail}"


def _projection(row: Any) -> ModelRegistrationProjection:
    return ModelRegistrationProjection.model_validate(row._asdict())


def _after(order: _Order) -> str:
    first, bounds = next(iter(order)), ", ".join(f"%(after_{name})s" for name in order)
    # The first comparison is implied; it lets an index start there even if the columns come from
    # both tables of the view.
    return f"{first} >= %(after_{first})s AND ({', '.join(order)}) > ({bounds})"


def _write_cursor(row: ModelRegistrationProjection, order: _Order) -> str:
    return to_json([getattr(row, name) for name in order]).decode()


def _read_cursor(cursor: str, order: _Order) -> dict[str, Any]:
    try:
        values = zip(order.items(), from_json(cursor), strict=True)
        return {f"after_{name}": parse(value) for (name, parse), value in values}
    except (ValueError, TypeError, AttributeError):
        raise ConfigurationError(
            f"cursor={cursor[:80]!r} does not belong to this list.",
            hint="Pass the next_cursor of the page before, or none for the first page.",
        ) from None
