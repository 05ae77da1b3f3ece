"""Records that nobody can read, one for each reason to park, and the release that reads them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from onex_platform.domain import headers, intake
from onex_platform.domain.envelope import EnumParkReason
from onex_platform.domain.events import EnumEventKind, LogEvent
from onex_platform.domain.intake import IntakeRules, Parked, RawRecord
from onex_platform.engines.kafka.clients import KafkaRecord
from onex_platform.ingest.archive import PageArchive
from onex_platform.ingest.letters import letter_replay
from onex_platform_tests.support.broker import sent
from onex_platform_tests.support.live_registry import execute

Kind = EnumEventKind
Reason = EnumParkReason
LEDGER_BEGINS = datetime(2026, 1, 1, tzinfo=UTC)
MOST_BYTES = 4096
# What is parked for its headers is so by a contract that asks for them.
OF_VALUES = frozenset(Reason) - {
    Reason.BAD_HEADERS,
    Reason.UNSIGNED,
    Reason.BAD_SIGNATURE,
    Reason.UNKNOWN_KEY,
}


def healthy(reason: EnumParkReason) -> KafkaRecord:
    """What the sender of a broken record meant."""
    return sent(Kind.NODE_INTROSPECTION, f"node-{reason.value}")


def broken(reason: EnumParkReason, record: KafkaRecord) -> KafkaRecord:
    """The record as it is sent, so that it is parked for this reason."""
    envelope = json.loads(record.value or b"")
    payload = envelope["payload"]
    changes: dict[EnumParkReason, dict[str, Any]] = {
        Reason.TOO_LARGE: {"payload": payload | {"metadata": {"a": "x" * MOST_BYTES}}},
        Reason.BAD_ENVELOPE: {"event_id": "no id"},
        Reason.UNKNOWN_EVENT_TYPE: {"event_type": "onex.node.of.tomorrow"},
        Reason.WRONG_EVENT_TYPE: {"event_type": Kind.NODE_HEARTBEAT.event_type},
        Reason.UNKNOWN_VERSION: {"schema_version": 9},
        Reason.BAD_PAYLOAD: {"payload": payload | {"node_type": "MYSTERY"}},
        Reason.BAD_NODE_ID: {"payload": payload | {"node_id": ""}},
        Reason.BEYOND_LEDGER: {"timestamp": "2025-01-01T00:00:00Z"},
    }
    if reason is Reason.NO_VALUE:
        return record._replace(value=None)
    if reason is Reason.NOT_JSON:
        return record._replace(value=b"\xff{")
    if reason is Reason.BAD_TENANT:
        return record._replace(headers=[(headers.TENANT, b"no tenant!")])
    return record._replace(value=json.dumps(envelope | changes[reason]).encode())


def release_that_reads(patch: pytest.MonkeyPatch, records: Iterable[KafkaRecord]) -> None:
    """Replace the rules by those of a release that understands what these senders meant.

    Whatever it makes of the bytes, the ledger's memory is no matter of understanding.
    """
    meant = {str(record.key).encode(): record.value for record in records}

    def admit(record: RawRecord, rules: IntakeRules, read_at: datetime) -> LogEvent | Parked:
        value = meant.get(record.key or b"", record.value)
        assert value is None or isinstance(value, bytes)
        return intake.admit(replace(record, value=value, headers=()), rules, read_at)

    patch.setattr(letter_replay, "admit", admit)


def forget_ids_before(archive: PageArchive, moment: datetime) -> None:
    """The ledger as it is after it was pruned."""
    execute(
        archive,
        "INSERT INTO ledger_floors (domain, pruned_before) VALUES (%s, %s)"
        " ON CONFLICT (domain) DO UPDATE SET pruned_before = excluded.pruned_before",
        archive.domain,
        moment,
    )


def park(archive: PageArchive, records: Iterable[RawRecord], reason: str = "not_json") -> None:
    """Records as a cut parks them."""
    for record in records:
        execute(
            archive,
            'INSERT INTO parked_records (domain, topic, partition, "offset", kind, reason, detail,'
            " record_timestamp, append_time, legacy, key, value, header_names, header_values)"
            " VALUES (%s, %s, %s, %s, %s, %s, 'it is odd', %s, %s, %s, %s, %s, %s, %s)",
            archive.domain,
            record.topic,
            record.partition,
            record.offset,
            record.kind,
            reason,
            record.timestamp,
            record.append_time,
            record.legacy,
            record.key,
            record.value,
            [name for name, _ in record.headers],
            [value for _, value in record.headers],
        )
