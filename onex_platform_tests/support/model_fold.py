"""An independent fold, written only for the tests, straight from the written decisions.

It shares no rule with the package: no table, no effects, just one `if` after the other on a dict.
"""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]


def fold_plainly(events: list[Any]) -> tuple[dict[Any, Row], dict[str, int]]:
    rows: dict[Any, Row] = {}
    counts: dict[str, int] = {}
    for event in events:
        outcome = _fold_one(rows, event)
        counts[outcome] = counts.get(outcome, 0) + 1
    return rows, counts


def _fold_one(rows: dict[Any, Row], e: Any) -> str:
    kind = e.kind.value
    row = rows.get(e.entity)
    if e.duplicate:
        return "duplicate"
    if row is not None and row["tenant"] != e.tenant:
        return "parked"
    if row is not None and e.position <= row["position"]:
        return "stale"
    if kind == "registry.introspection.requested":
        return "applied"

    if kind == "node.introspection.published":
        return _introspect(rows, row, e)
    if row is None:
        return "illegal"
    if e.epoch is not None and e.epoch < row["epoch"]:
        return "stale"
    if e.epoch is not None and e.epoch > row["epoch"]:
        return "illegal"
    if row["closed_at"] is not None:
        return "illegal"

    state = row["state"]
    if kind == "node.heartbeat.published":
        if state in ("rejected", "liveness_expired"):
            return "illegal"
        row["beat_at"] = (
            e.occurred_at if row["beat_at"] is None else max(row["beat_at"], e.occurred_at)
        )
        if state == "active":
            row["alive_until"] = max(row["alive_until"], e.deadline)
        row["position"] = e.position
        return "applied"

    if kind == "registry.node.accepted" and state == "pending_registration":
        _move(row, "accepted", e)
        row["ack_until"] = e.deadline
        row["ack_timeout_at"] = None
    elif kind == "registry.node.registration_failed" and state == "pending_registration":
        row["failure"] = (e.payload.error_code, e.payload.error_message)
        if not e.payload.retry_eligible:
            _move(row, "rejected", e)
    elif kind == "registry.node.ack_requested" and state == "accepted":
        _move(row, "awaiting_ack", e)
        row["ack_until"] = e.deadline
        row["ack_timeout_at"] = None
    elif kind == "node.ack.published" and state == "awaiting_ack":
        _move(row, "ack_received", e)
        row["ack_until"] = None
    elif kind == "registry.node.registered" and state == "ack_received":
        _move(row, "active", e)
        row["alive_until"] = e.deadline
        row["expired_at"] = None
        if row["registered_at"] is None:
            row["registered_at"] = e.occurred_at
    elif kind == "registry.node.ack_timed_out" and state in ("accepted", "awaiting_ack"):
        if row["ack_until"] != e.deadline:
            return "stale"
        _move(row, "ack_timed_out", e)
        row["ack_until"] = None
        row["ack_timeout_at"] = e.occurred_at
    elif kind == "registry.node.liveness_expired" and state == "active":
        if row["alive_until"] != e.deadline:
            return "stale"
        _move(row, "liveness_expired", e)
        row["alive_until"] = None
        row["expired_at"] = e.occurred_at
    elif kind == "registry.node.deregistered":
        row["closed_at"] = e.occurred_at
        row["ack_until"] = row["alive_until"] = None
    elif kind == "node.shutdown.announced":
        pass
    else:
        return "illegal"
    row["position"] = e.position
    row["event_id"] = e.event_id
    return "applied"


def _introspect(rows: dict[Any, Row], row: Row | None, e: Any) -> str:
    if row is None:
        rows[e.entity] = {
            "tenant": e.tenant,
            "state": "pending_registration",
            "changed_at": e.occurred_at,
            "registered_at": None,
            "beat_at": None,
        }
        _begin(rows[e.entity], e, 1 if e.epoch is None else e.epoch)
        return "applied"
    over = row["closed_at"] is not None or row["state"] in ("rejected", "liveness_expired")
    older = e.occurred_at < row["introspected_at"]
    if e.epoch is not None and e.epoch < row["epoch"]:
        return "stale"
    if e.epoch is not None and e.epoch > row["epoch"]:
        _move(row, "pending_registration", e)
        _begin(row, e, e.epoch)
        return "applied"
    if e.epoch is None and over:
        if older:
            return "stale"
        _move(row, "pending_registration", e)
        _begin(row, e, row["epoch"] + 1)
        return "applied"
    if row["closed_at"] is not None:
        return "illegal"
    if older:
        return "stale"
    if over:
        return "illegal"
    if row["state"] == "ack_timed_out":
        _move(row, "pending_registration", e)
    _describe(row, e)
    return "applied"


def _begin(row: Row, e: Any, epoch: int) -> None:
    row["epoch"] = epoch
    for name in (
        "ack_until",
        "alive_until",
        "ack_timeout_at",
        "expired_at",
        "closed_at",
        "failure",
    ):
        row[name] = None
    _describe(row, e)


def _describe(row: Row, e: Any) -> None:
    row["type"] = e.payload.node_type.value
    row["version"] = e.payload.node_version
    row["capabilities"] = e.payload.capabilities.model_dump()
    row["introspected_at"] = e.occurred_at
    row["position"] = e.position
    row["event_id"] = e.event_id


def _move(row: Row, state: str, e: Any) -> None:
    if row["state"] != state:
        row["state"] = state
        row["changed_at"] = e.occurred_at


def as_plain(projection: Any) -> Row:
    """A projection of the package in the shape of this fold's rows."""
    failed = projection.failure_code is not None
    return {
        "tenant": projection.tenant,
        "state": projection.current_state.value,
        "epoch": projection.epoch,
        "changed_at": projection.last_state_change_at,
        "registered_at": projection.registered_at,
        "beat_at": projection.last_heartbeat_at,
        "ack_until": projection.ack_deadline,
        "alive_until": projection.liveness_deadline,
        "ack_timeout_at": projection.ack_timeout_emitted_at,
        "expired_at": projection.liveness_timeout_emitted_at,
        "closed_at": projection.deregistered_at,
        "failure": (projection.failure_code, projection.failure_message) if failed else None,
        "type": projection.node_type.value,
        "version": projection.node_version,
        "capabilities": projection.capabilities.model_dump(),
        "introspected_at": projection.introspected_at,
        "position": projection.last_applied_sequence,
        "event_id": projection.last_applied_event_id,
    }
