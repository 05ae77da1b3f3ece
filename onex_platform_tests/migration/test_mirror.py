"""The mirror: records as they were, nothing twice, whatever it has forgotten."""

from __future__ import annotations

from collections import Counter

import pytest
from confluent_kafka import TopicPartition

from onex_platform.base.errors import InfraError
from onex_platform.engines.kafka.clients import (
    KafkaRecord,
    open_admin,
    open_producer,
    produce_all,
    read_to_end,
)
from onex_platform.engines.kafka.group_offsets import end_offsets, first_offsets
from onex_platform.engines.kafka.topic_admin import alter, most_bytes
from onex_platform.migration import mirror, phase_table
from onex_platform_tests.support import moving_topics
from onex_platform_tests.support.moving_topics import MovingTopic
from onex_platform_tests.support.waiting import eventually

pytestmark = pytest.mark.servers


def _send(moving: MovingTopic, *records: KafkaRecord) -> None:
    with open_producer(moving.settings) as producer:
        produce_all(producer, records)


def test_a_copy_has_key_headers_and_partition_of_its_record(version: MovingTopic) -> None:
    version.advance()
    headers = [("x-tenant", "omnibase"), ("ce_id", "an-id"), ("empty", None)]
    source = version.source
    _send(
        version,
        KafkaRecord(source, version.event("node-1", 1), "node-1", headers),
        KafkaRecord(source, b"\xff no json", "node-2"),
        KafkaRecord(source, None, "node-3"),
        KafkaRecord(source, b'{"payload": {"mood": "bad"}}', None),
    )
    assert version.migrator.mirror(source).copied == 4
    before = {mirror.id_of(m): m for m in read_to_end(version.settings, [source])}
    after = {mirror.id_of(m): m for m in read_to_end(version.settings, [version.target])}
    assert before.keys() == after.keys()
    assert len(after) == 4
    for event_id, message in before.items():
        copy = after[event_id]
        assert (copy.key(), copy.partition()) == (message.key(), message.partition())
        kept = mirror.headers_of(message)
        assert list(mirror.headers_of(copy))[: len(kept)] == list(kept)
        assert mirror.headers_of(copy)[-1] == (mirror.MIRRORED_FROM, source.encode())
        if message.value() in (None, b"\xff no json"):
            assert copy.value() == message.value()


def test_a_mirror_that_forgot_its_place_copies_nothing_twice(
    version: MovingTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "BATCH_RECORDS", 3)  # partitions come one after the other
    version.advance()
    ids = version.write(version.source, 30)
    assert version.migrator.mirror(version.source).copied == 30
    with open_admin(version.settings) as admin:
        start = first_offsets(admin, version.source)
    with version.database.transaction() as cursor:
        phase_table.move_mirror(cursor, version.target, start)
    ids += version.write(version.source, 5)
    again = version.migrator.mirror(version.source)
    assert (again.copied, again.known) == (5, 30)
    assert sorted(version.ids(version.target)) == sorted(ids)
    assert version.orders(version.target) == version.orders(version.source)


def test_a_record_that_cannot_be_lifted_holds_up_its_partition_alone(
    stream: MovingTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.advance()
    ids = stream.write(stream.source, 12)
    by_partition = Counter(m.partition() for m in read_to_end(stream.settings, [stream.source]))
    bad = next(iter(read_to_end(stream.settings, [stream.source])))

    def lifted(value: bytes) -> bytes:
        if value == bad.value():
            raise ValueError("an unknown enum")
        return value

    with monkeypatch.context() as patch:
        patch.setattr(moving_topics, "lifted", lifted)
        done = stream.migrator.mirror(stream.source)
        assert done.stuck == [f"{stream.source}[{bad.partition()}] 0: ValueError: an unknown enum"]
        assert done.copied == 12 - by_partition[bad.partition()]
        assert eventually(
            lambda: mirror.id_of(bad) in stream.unmet().get("events missing on the target", ())
        )
    assert stream.migrator.mirror(stream.source).copied == by_partition[bad.partition()]
    assert sorted(stream.ids(stream.target)) == sorted(ids)


def test_a_record_that_is_too_large_for_the_target_holds_up_its_partition_alone(
    version: MovingTopic,
) -> None:
    version.advance()
    source, target = version.source, version.target
    with open_admin(version.settings) as admin:
        usual = str(most_bytes(admin, target))
        alter(admin, target, {"max.message.bytes": "4000"})
        _send(version, KafkaRecord(source, b"no json" * 500, "node-1"))
        [large] = read_to_end(version.settings, [source])
        ids = [mirror.id_of(large), *version.write(source, 200, keys=20)]
        by_partition = Counter(m.partition() for m in read_to_end(version.settings, [source]))
        done = version.migrator.mirror(source)
        [said] = done.stuck
        assert said.startswith(f"{source}[{large.partition()}] 0: ")
        assert said.endswith(f" bytes, and {target} takes 2976")
        assert done.copied == 201 - by_partition[large.partition()]
        alter(admin, target, {"max.message.bytes": usual})
    assert version.migrator.mirror(source).copied == by_partition[large.partition()]
    assert sorted(version.ids(target)) == sorted(ids)
    assert version.orders(target) == version.orders(source)


def test_what_a_producer_writes_itself_is_left_to_it(version: MovingTopic) -> None:
    slow = version.settling(3600)
    slow.advance()
    ids = slow.write_both(10)
    assert slow.migrator.mirror(slow.source).copied == 0
    assert sorted(slow.ids(slow.target)) == sorted(ids)
    lone = [KafkaRecord(slow.source, slow.event("dual-9", 1), "dual-9", [("x-also-on", "other")])]
    _send(slow, *lone)
    assert slow.migrator.mirror(slow.source).waiting == 1
    assert eventually(lambda: version.migrator.mirror(version.source).copied == 1)


def test_records_that_were_deleted_before_they_were_copied_are_named(version: MovingTopic) -> None:
    version.advance()
    version.write(version.source, 30)
    with open_admin(version.settings) as admin:
        ends = end_offsets(admin, version.source)
        for answer in admin.delete_records(
            [TopicPartition(*place, end) for place, end in ends.items()]
        ).values():
            answer.result(timeout=10)
    assert "records deleted before they were mirrored" in version.unmet()
    with pytest.raises(InfraError, match=r"lost offsets 0 to \d+ before they were mirrored"):
        version.migrator.mirror(version.source)
