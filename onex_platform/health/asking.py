"""Operators ask nodes to introspect: some by name, or all of a tenant, though not all too often.

A request is a fact like every other: it takes its place in the log, and is published from there.
Of one node there is one request per interval, whether the registry's policy or an operator made it.
A broadcast would make a whole fleet answer at once: the next one of a tenant has to wait.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID, uuid5

from onex_platform.base.errors import ConfigurationError
from onex_platform.base.faults import effect
from onex_platform.context import PlatformContext
from onex_platform.domain.events import EnumEventKind, LogEvent
from onex_platform.domain.identity import (
    FACT_NAMESPACE,
    EntityKey,
    fact_id,
    identify_node,
    node_id_of,
)
from onex_platform.domain.machine import FIRST_EPOCH
from onex_platform.domain.payloads import IntrospectionRequestedPayload
from onex_platform.engines.postgres.database import Cursor
from onex_platform.ingest.inbox import submit
from onex_platform.projections import overdue
from onex_platform.projections.reader import ProjectionReaderRegistration

_KIND = EnumEventKind.INTROSPECTION_REQUESTED
_ORIGIN = datetime(1970, 1, 1, tzinfo=UTC)


class Order(NamedTuple):
    """Who asks, when and why."""

    by: str
    reason: str
    now: datetime


def ask_nodes(
    platform: PlatformContext, nodes: Sequence[str], tenant: str | None, order: Order
) -> int:
    """Ask nodes by name; how many requests were not on their way already."""
    _require_named(order)
    tenant = tenant or platform.settings.tenant
    facts = [_request_of_node(platform, node, tenant, order) for node in nodes]
    with _ordering(platform) as cursor:
        return submit(cursor, facts)


def ask_everybody(platform: PlatformContext, tenants: Sequence[str], order: Order) -> list[str]:
    """Ask all nodes of these tenants, or of all tenants if none is named; whose were asked.

    Refused altogether if one of them was asked too short a while ago.
    """
    _require_named(order)
    with _ordering(platform) as cursor:
        known = overdue.active_tenants(cursor, platform.domain)
        chosen = list(tenants) or known
        for tenant in chosen:
            _require_active(tenant, known)
        # Whoever orders at the same time waits here, and finds this order.
        cursor.execute("LOCK TABLE introspection_broadcasts IN SHARE ROW EXCLUSIVE MODE")
        last = _last_broadcasts(cursor, platform.domain, chosen)
        pause = timedelta(seconds=platform.settings.health.broadcast_seconds)
        early = {tenant: at + pause for tenant, at in last.items() if at + pause > order.now}
        if early:
            told = ", ".join(
                f"{tenant} (next at {at.astimezone(UTC).isoformat(timespec='seconds')})"
                for tenant, at in sorted(early.items())
            )
            raise ConfigurationError(
                f"All nodes were asked less than {pause.total_seconds():g} s ago, of: {told}.",
                hint="Wait, or name nodes. ONEX_HEALTH_BROADCAST_SECONDS is the pause.",
            )
        facts = [
            _request_of_all(platform.domain, tenant, last.get(tenant), order) for tenant in chosen
        ]
        for fact in facts:
            cursor.execute(
                "INSERT INTO introspection_broadcasts"
                " (event_id, domain, tenant, reason, ordered_by, ordered_at)"
                " VALUES (%s, %s, %s, %s, %s, %s)",
                [fact.event_id, platform.domain, fact.tenant, order.reason, order.by, order.now],
            )
        submit(cursor, facts)
    return chosen


@contextmanager
def _ordering(platform: PlatformContext) -> Iterator[Cursor]:
    """The transaction of an order."""
    with effect("introspection.ask"), platform.database.transaction() as cursor:
        yield cursor


def _request_of_node(platform: PlatformContext, node: str, tenant: str, order: Order) -> LogEvent:
    try:
        entity_id = identify_node(node, tenant).entity_id
    except ValueError as error:
        raise ConfigurationError(f"{error}.") from None
    row = ProjectionReaderRegistration(platform.database).get_entity_state(
        entity_id, platform.domain, include_deregistered=True
    )
    node_id = node if row is None else node_id_of(entity_id, row.node_name, row.tenant)
    epoch = FIRST_EPOCH if row is None else row.epoch
    interval = (order.now - _ORIGIN) // timedelta(
        seconds=platform.settings.registration.request_interval_seconds
    )
    return _fact(
        EntityKey(platform.domain, entity_id),
        tenant if row is None else row.tenant,
        order,
        # The policy's own name for a request within the interval.
        fact_id(entity_id, epoch, _KIND, f"interval {interval}"),
        IntrospectionRequestedPayload(
            request_id=f"{entity_id}/{interval}", target_node_ids=(node_id,), reason=order.reason
        ),
        node_id=node_id,
        epoch=epoch,
    )


def _request_of_all(domain: str, tenant: str, last: datetime | None, order: Order) -> LogEvent:
    """It is about no node: its place in the log is that of an entity which stands for all."""
    everybody = uuid5(FACT_NAMESPACE, f"all nodes of {tenant}")
    behind = "none" if last is None else last.astimezone(UTC).isoformat()
    event_id = fact_id(everybody, FIRST_EPOCH, _KIND, f"after {behind}")
    request = IntrospectionRequestedPayload(request_id=str(event_id), reason=order.reason)
    return _fact(EntityKey(domain, everybody), tenant, order, event_id, request)


def _fact(
    entity: EntityKey,
    tenant: str,
    order: Order,
    event_id: UUID,
    request: IntrospectionRequestedPayload,
    *,
    node_id: str | None = None,
    epoch: int | None = None,
) -> LogEvent:
    return LogEvent(
        position=0,
        kind=_KIND,
        event_id=event_id,
        entity=entity,
        tenant=tenant,
        node_id=node_id,
        epoch=epoch,
        occurred_at=order.now,
        payload=request.model_copy(update={"ordered_by": order.by}),
        reported_at=order.now,
        correlation_id=event_id,
    )


def _last_broadcasts(cursor: Cursor, domain: str, tenants: Iterable[str]) -> dict[str, datetime]:
    rows = cursor.execute(
        "SELECT tenant, max(ordered_at) AS at FROM introspection_broadcasts"
        " WHERE domain = %s AND tenant = ANY(%s) GROUP BY tenant",
        [domain, list(tenants)],
    )
    return {row.tenant: row.at for row in rows}


def _require_named(order: Order) -> None:
    for name, value in (("reason", order.reason), ("by", order.by)):
        if not value.strip():
            raise ConfigurationError(f"{name} is empty; a request says who asks and why.")


def _require_active(tenant: str, known: Sequence[str]) -> None:
    if tenant in known:
        return
    near = difflib.get_close_matches(tenant, known, n=1)
    raise ConfigurationError(
        f"Tenant {tenant!r} has no active node that could be asked.",
        hint=f"Did you mean {near[0]}?" if near else "`onex registry list` shows who there is.",
    )
