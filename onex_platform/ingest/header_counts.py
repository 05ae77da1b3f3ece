"""How many events came with headers or keys that their contract does not want, by topic and day."""

from __future__ import annotations

from datetime import date, datetime
from typing import NamedTuple

from onex_platform.domain.headers import EnumHeaderFinding
from onex_platform.engines.postgres.database import Cursor
from onex_platform.ingest.admission.header_columns import Findings


class HeaderCount(NamedTuple):
    """Records of a topic and a day with one fault."""

    topic: str
    day: date
    finding: EnumHeaderFinding
    records: int


def add_findings(cursor: Cursor, domain: str, instant: datetime, findings: Findings) -> None:
    """Count what was wrong in a cut, in the transaction that commits it."""
    if not findings:
        return
    cursor.executemany(
        "INSERT INTO header_findings AS counted (domain, topic, day, finding, records)"
        " VALUES (%s, %s, (%s AT TIME ZONE 'UTC')::date, %s, %s)"
        " ON CONFLICT (domain, topic, day, finding)"
        " DO UPDATE SET records = counted.records + excluded.records",
        [
            (domain, topic, instant, finding.value, records)
            for (topic, finding), records in sorted(findings.items())
        ],
    )


def header_counts(cursor: Cursor, domain: str, since: date) -> list[HeaderCount]:
    """What was counted since a day, newest first."""
    rows = cursor.execute(
        "SELECT topic, day, finding, records FROM header_findings"
        " WHERE domain = %s AND day >= %s ORDER BY day DESC, topic, finding",
        [domain, since],
    ).fetchall()
    return [HeaderCount(r.topic, r.day, EnumHeaderFinding(r.finding), r.records) for r in rows]
