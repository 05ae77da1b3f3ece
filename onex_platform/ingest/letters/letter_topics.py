"""Dead letters on their way to Kafka: each goes to the dead letter topic of its source's contract.

`parked_records` is the outbox: a record is parked in the transaction that commits its cut, and is
noted as published after the broker acknowledged it. Killed in between, it is sent again, under the
same id. The topic tells others; what is replayed are the bytes in PostgreSQL. So a letter that does
not fit into a record, or that the broker refuses as it is, goes there without a part of itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from onex_platform.base.faults import effect
from onex_platform.base.settings import Settings
from onex_platform.base.telemetry import get_logger
from onex_platform.context import PlatformContext
from onex_platform.domain import headers as h
from onex_platform.engines.kafka.clients import KafkaRecord
from onex_platform.engines.kafka.sender import send_each
from onex_platform.ingest.letters.parked_letters import Letter, find_unpublished, note_published
from onex_platform.records.wrapping import Wrapper
from onex_platform.topics.schemas.published_values import topic_of
from onex_platform.topics.signals import impatient_producer

_AT_ONCE = 100
# Of value, key and headers together, all of which are in memory at once.
_MOST_BYTES_AT_ONCE = 4_000_000
# The same of one letter. Brokers and clients take a megabyte; what we write about it needs some.
_MOST_BYTES = 900_000
# Of a header's lengths, in a record.
_HEADER_BYTES = 10
# What stays behind first, and what is there instead.
_PARTS: dict[str, Any] = {"value": None, "headers": (), "key": None}
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
        letters = find_unpublished(
            cursor, platform.domain, topics, limit=_AT_ONCE, most_bytes=_MOST_BYTES_AT_ONCE
        )
    if not letters:
        return 0
    with effect("letters.send"):
        taken = _send(platform.settings, letters, topics)
    with effect("letters.mark"), platform.database.transaction() as cursor:
        note_published(cursor, platform.domain, taken, now)
    return len(taken)


def _send(settings: Settings, letters: Sequence[Letter], topics: Mapping[str, str]) -> list[Letter]:
    """Send letters; those that the broker has taken.

    It refuses a letter together with those that travel with it. So one that is refused is sent
    again alone, then without all that its sender wrote.
    """
    wrapper = Wrapper(settings)
    with impatient_producer(settings) as producer:

        def refused(some: Sequence[Letter], most_bytes: int) -> dict[int, str]:
            return send_each(
                producer,
                [to_record(item, topics[item.id.topic], wrapper, most_bytes) for item in some],
            )

        doubtful = refused(letters, _MOST_BYTES)
        taken = [letter for place, letter in enumerate(letters) if place not in doubtful]
        for letter in (letters[place] for place in sorted(doubtful)):
            if refused([letter], _MOST_BYTES) and (reasons := refused([letter], 0)):
                get_logger(__name__).warning(
                    "letters.refused", letter=str(letter.id), error=reasons[0]
                )
            else:
                taken.append(letter)
    return taken


def dead_letter_topics(platform: PlatformContext) -> dict[str, str]:
    """The broker's names of the dead letter topics, by source; not every contract has one."""
    return {
        contract.topic: topic_of(contract.dead_letters, platform.settings.environment)
        for contract in platform.catalogue.registration_inputs()
        if contract.dead_letters is not None
    }


def to_record(
    letter: Letter, topic: str, wrapper: Wrapper, most_bytes: int = _MOST_BYTES
) -> KafkaRecord:
    """A letter as others read it: the original key, value and headers, and why it is here.

    Of a letter above `most_bytes` the value stays behind, then the sender's headers, then the key.
    """
    letter_id = uuid5(NAMESPACE_URL, f"onex:dead-letter:{letter.id}")
    whole, letter = letter, _shortened(letter, most_bytes)
    own = {name for name, _ in letter.headers}
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
    if omitted := _size(whole) - _size(letter):
        about[h.OMITTED_BYTES] = str(omitted)
    headers = [item for item in letter.headers if item[0] not in about]
    return KafkaRecord(topic, letter.value, letter.key, [*headers, *about.items()])


def _shortened(letter: Letter, most_bytes: int) -> Letter:
    for part, nothing in _PARTS.items():
        if _size(letter) + _HEADER_BYTES * len(letter.headers) > most_bytes:
            letter = replace(letter, **{part: nothing})
    return letter


def _size(letter: Letter) -> int:
    """The bytes that the letter's sender wrote."""
    headers = sum(len(name.encode()) + len(value or b"") for name, value in letter.headers)
    return headers + len(letter.key or b"") + len(letter.value or b"")


def _unix_ms(moment: datetime) -> str:
    return str(int(moment.timestamp() * 1000))
