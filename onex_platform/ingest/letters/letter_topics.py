"""Dead letters on their way to Kafka: each goes to the dead letter topic of its source's contract.

`parked_records` is the outbox: a record is parked in the transaction that commits its cut, and is
noted as published after the broker acknowledged it. Killed in between, it is sent again, under the
same id. The topic tells others; what is replayed are the bytes in PostgreSQL.
"""

from __future__ import annotations

from datetime import datetime
from uuid import NAMESPACE_URL, uuid5

from onex_platform.base.faults import effect
from onex_platform.context import PlatformContext
from onex_platform.domain import headers as h
from onex_platform.engines.kafka.clients import KafkaRecord
from onex_platform.ingest.letters.parked_letters import Letter, find_unpublished, note_published
from onex_platform.records.wrapping import Wrapper
from onex_platform.topics.grammar import parse_logical, physical
from onex_platform.topics.policy import load_policy
from onex_platform.topics.signals import send_soon

_AT_ONCE = 100
# What is larger, with its headers, might not fit into a record: then the value stays behind.
_MOST_BYTES = 900_000
_MOST_REASON = 1024
# The log reads a record once; another attempt would find the same bytes.
_FAILURE_CLASS = "permanent"
_ATTEMPTS = "1"


def publish_letters(platform: PlatformContext, now: datetime) -> int:
    """Publish letters that are not published yet, some at a time; how many were acknowledged."""
    topics = dead_letter_topics(platform)
    if not topics:
        return 0
    with platform.database.transaction() as cursor:
        letters = find_unpublished(cursor, platform.domain, topics, limit=_AT_ONCE)
    if letters:
        with effect("letters.send"):
            wrapper = Wrapper(platform.settings)
            send_soon(
                platform.settings,
                [to_record(item, topics[item.id.topic], wrapper) for item in letters],
            )
        with effect("letters.mark"), platform.database.transaction() as cursor:
            note_published(cursor, platform.domain, letters, now)
    return len(letters)


def dead_letter_topics(platform: PlatformContext) -> dict[str, str]:
    """The broker's names of the dead letter topics, by source; not every contract has one."""
    return {
        contract.topic: topic_of(contract.dead_letters, platform.settings.environment)
        for contract in platform.catalogue.registration_inputs()
        if contract.dead_letters is not None
    }


def to_record(letter: Letter, topic: str, wrapper: Wrapper) -> KafkaRecord:
    """A letter as others read it: the original key, value and headers, and why it is here."""
    letter_id = uuid5(NAMESPACE_URL, f"onex:dead-letter:{letter.id}")
    value, own = letter.value, {name for name, _ in letter.headers}
    # Where the sender did not say it. Nobody knows what is in bytes that can't be read.
    usual = dict(wrapper.headers_of_record(letter_id)) | {h.PII_LEVEL: "high"}
    about: dict[str, str | bytes | None] = {
        **{name: text for name, text in usual.items() if name not in own},
        h.FAILURE_CLASS: _FAILURE_CLASS,
        h.FAILURE_REASON: f"{letter.reason}: {letter.detail}"[:_MOST_REASON],
        h.ATTEMPT: _ATTEMPTS,
        h.FIRST_SEEN: _unix_ms(letter.record_timestamp or letter.parked_at),
        h.LAST_SEEN: _unix_ms(letter.parked_at),
        h.SOURCE_TOPIC: letter.id.topic,
        h.SOURCE_PARTITION: str(letter.id.partition),
        h.SOURCE_OFFSET: str(letter.id.offset),
        "ce_id": str(letter_id),
    }
    if value is not None and len(value) > _MOST_BYTES:
        about["x-omitted-bytes"] = str(len(value))
        value = None
    headers = [item for item in letter.headers if item[0] not in about]
    return KafkaRecord(topic, value, letter.key, [*headers, *about.items()])


def _unix_ms(moment: datetime) -> str:
    return str(int(moment.timestamp() * 1000))


def topic_of(name: str, environment: str) -> str:
    """The broker's name of a topic that belongs to the operator of the platform."""
    home = load_policy().home
    return str(physical(parse_logical(name), environment=environment, tenant=home, home=home))
