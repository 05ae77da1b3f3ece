"""What is sent to `rty` and `dlt` fits: the client refuses nothing that a contract allows."""

from __future__ import annotations

from onex_platform.base.settings import Settings
from onex_platform.delivery.config import DeliveryConfig, Limits
from onex_platform.delivery.entries import Attempts, Entry, EnumEntry, EnumFailure, Record, encode
from onex_platform.delivery.entry_writer import PRODUCER, EntryWriter
from onex_platform.engines.kafka.clients import BULK, KafkaProducer
from onex_platform.topics.contract import FAILURE_ROOM, LARGEST_RECORD
from onex_platform_tests.support.simulated_delivery import (
    GROUP,
    TIERS,
    TRANSIENT,
    Poison,
    filled,
    settled,
)

_NOBODY = {"bootstrap.servers": "localhost:1", **BULK, **PRODUCER}
_LONGEST_NAME = "n" * 249


def test_the_largest_record_of_a_contract_is_left_to_the_broker_to_judge() -> None:
    broker = filled()
    lane = settled(broker, Poison({})).lane
    config = DeliveryConfig("source", "rty", "dlt", GROUP, Limits(TIERS))
    producer = KafkaProducer(Settings(), dict(_NOBODY))
    record = Record(b"a", bytes(LARGEST_RECORD), (), "source", 0, 0, broker.now)
    lane.failed(b"a", record, TRANSIENT, broker.now)
    EntryWriter(producer, config, lambda: broker.now).append(0, lane)
    assert (lane.is_open, lane.alerts) == (True, [])
    producer.purge()


def test_the_headers_of_a_failure_fit_into_the_room_for_them() -> None:
    big = 2**63 - 1
    record = Record(b"a", b"", (), _LONGEST_NAME, big, big, big)
    attempts = Attempts(big, big, big, big, EnumFailure.PERMANENT, "\N{FIRE}" * 5000)
    entry = Entry(EnumEntry.LETTER, b"a", big, record, attempts, epoch=big, number=big, leads=True)
    headers = encode(entry, _LONGEST_NAME)
    assert sum(len(name) + len(value or b"") for name, value in headers) < FAILURE_ROOM - 1024
