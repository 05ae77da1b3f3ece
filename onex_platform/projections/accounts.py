"""The account of a batch: its outcome counts, the events it refused, the records it parked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from onex_platform.domain.batch import Refusal
from onex_platform.domain.intake import Parked
from onex_platform.domain.states import EnumOutcome
from onex_platform.engines.postgres import Cursor, copy_rows

_REFUSED = {
    "entity_id": "uuid",
    "domain": "text",
    "position": "bigint",
    "outcome": "text",
    "reason": "text",
    "event_id": "uuid",
    "kind": "text",
    "tenant": "text",
    "occurred_at": "timestamptz",
}
_PARK = """
    INSERT INTO parked_records (
        topic, partition, "offset", domain, kind, reason, detail, record_timestamp, append_time,
        legacy, key, value, header_names, header_values
    ) VALUES (
        %(topic)s, %(partition)s, %(offset)s, %(domain)s, %(kind)s, %(reason)s, %(detail)s,
        %(timestamp)s, %(append_time)s, %(legacy)s, %(key)s, %(value)s, %(header_names)s,
        %(header_values)s
    ) ON CONFLICT DO NOTHING"""


def record_outcomes(
    cursor: Cursor,
    domain: str,
    *,
    start: int,
    end: int,
    read: int,
    outcomes: Mapping[EnumOutcome, int],
) -> None:
    """Store the counts; the database refuses them if they do not add up to `read`."""
    cursor.execute(
        "INSERT INTO batch_outcomes (domain, start_position, end_position, read,"
        " applied, duplicate, stale, illegal, parked)"
        " VALUES (%(domain)s, %(start)s, %(end)s, %(read)s,"
        " %(applied)s, %(duplicate)s, %(stale)s, %(illegal)s, %(parked)s)",
        {
            "domain": domain,
            "start": start,
            "end": end,
            "read": read,
            **{outcome.value: outcomes.get(outcome, 0) for outcome in EnumOutcome},
        },
    )


def record_refusals(cursor: Cursor, refusals: Iterable[Refusal]) -> int:
    """Keep which events had no effect, and why; how many."""
    return copy_rows(cursor, "illegal_events", _REFUSED, map(_refused_columns, refusals))


def park(cursor: Cursor, domain: str, parked: Iterable[Parked]) -> None:
    """Keep records that could not enter the log, with every byte that is needed to try again."""
    cursor.executemany(_PARK, [_parked_columns(domain, item) for item in parked])


def _refused_columns(refusal: Refusal) -> tuple[Any, ...]:
    event = refusal.event
    return (
        event.entity.entity_id,
        event.entity.domain,
        event.position,
        refusal.outcome,
        _storable(refusal.reason),
        event.event_id,
        event.kind,
        event.tenant,
        event.occurred_at,
    )


def _parked_columns(domain: str, parked: Parked) -> dict[str, Any]:
    record = parked.record
    return {
        "domain": domain,
        "reason": parked.reason,
        "detail": _storable(parked.detail),
        "header_names": [_storable(name) for name in record.headers],
        "header_values": list(record.headers.values()),
        **{
            name: getattr(record, name)
            for name in ("topic", "partition", "offset", "kind", "timestamp", "append_time")
        },
        "legacy": record.legacy,
        "key": record.key,
        "value": record.value,
    }


def _storable(text: str) -> str:
    """PostgreSQL's text holds neither NUL nor half a surrogate pair; a sender may send both."""
    return text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")
