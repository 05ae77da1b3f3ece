"""The canary reader: a `RetryingConsumer` with a group of its own reads back what was sent to it.

Others consume by the same code, so a reader that stands still says that theirs would. A look sends
a probe when one is due, and reads for seconds at most; no process has to live in between. A probe
is noted after the broker has it; one that was read before it was noted counts as read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID, uuid4

from confluent_kafka import KafkaException

from onex_platform.base.errors import InfraError, OnexError
from onex_platform.base.faults import effect
from onex_platform.base.telemetry import get_logger
from onex_platform.context import PlatformContext
from onex_platform.delivery.config import DeliveryConfig, broker_names
from onex_platform.delivery.consumer import RetryingConsumer
from onex_platform.delivery.delivered import Delivery
from onex_platform.delivery.delivery_alarms import alarms_of
from onex_platform.delivery.errors import OutageError, PermanentError
from onex_platform.engines.kafka.topic_admin import topic_names
from onex_platform.engines.postgres.database import Cursor
from onex_platform.health.canaries.troubles import Trouble
from onex_platform.migration.publication import published
from onex_platform.topics.catalogue import Catalogue
from onex_platform.topics.grammar import StreamName
from onex_platform.topics.policy import load_policy
from onex_platform.topics.schemas.annotated_fields import SchemaError
from onex_platform.topics.schemas.published_values import publish_values, schema_of

PROBES = StreamName("platform", "evt", "canary-probe", 1)
# The platform's rights cover the groups that begin so.
READER = "onex-platform-canary-reader"
# To join the group, and to read some probes.
_READ_SECONDS = 10.0
# A look that was killed is given up before the next one has to be; brokers allow no less.
_MEMBER: dict[str, Any] = {"session.timeout.ms": 6000}
_KEPT = timedelta(days=2)


@dataclass(frozen=True, slots=True)
class Probes:
    """Where the reader is: the last probe that was sent, and the first behind the last it read."""

    sent_at: datetime | None
    waiting_since: datetime | None

    def is_due(self, now: datetime, period: timedelta) -> bool:
        """Two in a period, as of samples."""
        return self.sent_at is None or now >= self.sent_at + period / 2

    def stands_still(self, now: datetime, period: timedelta) -> bool:
        return self.waiting_since is not None and now - self.waiting_since >= period


def look_at_probes(cursor: Cursor) -> Probes:
    """What is known; a probe that became a dead letter is waited for until a later one is read."""
    row = cursor.execute(
        "SELECT max(sent_at), min(sent_at) FILTER (WHERE read_at IS NULL AND sent_at > coalesce("
        " (SELECT max(sent_at) FROM canary_probes WHERE read_at IS NOT NULL), '-infinity'))"
        " FROM canary_probes"
    ).fetchone()
    return Probes(*(row or (None, None)))


def probe(platform: PlatformContext, catalogue: Catalogue, now: datetime) -> Probes:
    """Send what is due, and read what waits, for a bounded time; where the reader is then.

    `catalogue` has all topics. A cluster that has not got the reader's topics gets no probes. What
    goes wrong is no error here: the reader stands still, and that is told.
    """
    naming = broker_names(platform.settings, load_policy().home)
    config = DeliveryConfig.from_contract(catalogue[str(PROBES)], READER, naming)
    topics = {config.source, config.retry, config.dead_letters}
    if topics <= topic_names(platform.kafka.admin()):
        period = timedelta(seconds=platform.settings.canary.period_seconds)
        try:
            if _known(platform).is_due(now, period):
                _send(platform, catalogue, now)
            if _known(platform).waiting_since is not None:
                _read(platform, catalogue, config)
        except (OnexError, KafkaException) as error:
            get_logger(__name__).warning("canaries.no_probe", error=str(error))
    return _known(platform)


def still_reader(probes: Probes, now: datetime, period: timedelta) -> Iterator[Trouble]:
    """The reader, if it does not read on, as it is told."""
    if probes.waiting_since is not None and probes.stands_still(now, period):
        seconds = round((now - probes.waiting_since).total_seconds())
        yield Trouble(
            f"reader {READER}",
            f"The canary reader {READER} has read nothing of {PROBES} for {seconds} s.",
            {"group": READER, "topic": str(PROBES), "seconds": seconds},
        )


def _known(platform: PlatformContext) -> Probes:
    with platform.database.transaction() as cursor:
        return look_at_probes(cursor)


def _send(platform: PlatformContext, catalogue: Catalogue, now: datetime) -> None:
    probe_id = uuid4()
    value = {"probe_id": str(probe_id), "occurred_at": now.isoformat()}
    with published(platform.database, catalogue) as moved:
        values = [(PROBES, str(probe_id), value)]
        publish_values(platform.settings, moved, values, "canaries.probe")
    with effect("canaries.note_probe"), platform.database.transaction() as cursor:
        cursor.execute(
            "INSERT INTO canary_probes (probe_id, sent_at) VALUES (%s, %s) ON CONFLICT DO NOTHING",
            [probe_id, now],
        )
        cursor.execute("DELETE FROM canary_probes WHERE sent_at < %s", [now - _KEPT])


def _read(platform: PlatformContext, catalogue: Catalogue, config: DeliveryConfig) -> None:
    deadline = time.monotonic() + _READ_SECONDS
    asked = partial(published, platform.database, catalogue)
    with RetryingConsumer(
        platform.settings,
        config,
        partial(_note_read, platform),
        on_alert=alarms_of(platform.settings, asked, config),
        published=asked,
        **_MEMBER,
    ) as reader:
        reader.run(lambda: time.monotonic() >= deadline or _known(platform).waiting_since is None)


def _note_read(platform: PlatformContext, delivery: Delivery) -> None:
    """The handler: once or twice, the same row says the same."""
    try:
        said = schema_of(PROBES).decode(delivery.value or b"")
        probe_id, sent_at = UUID(said["probe_id"]), datetime.fromisoformat(said["occurred_at"])
    except (SchemaError, ValueError) as error:
        raise PermanentError(f"It is no probe: {error}") from error
    try:
        with effect("canaries.note_read"), platform.database.transaction() as cursor:
            cursor.execute(
                "INSERT INTO canary_probes (probe_id, sent_at, read_at) VALUES (%s, %s, %s)"
                " ON CONFLICT (probe_id) DO UPDATE SET read_at = excluded.read_at",
                [probe_id, sent_at, datetime.now(UTC)],
            )
    except InfraError as error:
        raise OutageError(error.message) from error
