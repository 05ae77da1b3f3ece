"""The canary node at work: it goes through a life as a node does, and waits at no step.

Whatever it has said or seen is noted in PostgreSQL before the next step, so any process goes on
where another was killed; at worst something is said again, under the same event id.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import TypeAdapter

from onex_platform.base.faults import effect
from onex_platform.context import PlatformContext
from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.identity import CANARY_ID, CANARY_NODE
from onex_platform.engines.kafka.clients import read_to_end
from onex_platform.engines.kafka.group_offsets import offsets_at
from onex_platform.engines.kafka.sender import send_one
from onex_platform.engines.postgres.database import Cursor
from onex_platform.health.canaries.life_steps import (
    Life,
    Step,
    is_due,
    is_stuck,
    next_epoch,
    said,
)
from onex_platform.migration.present import platform_now
from onex_platform.migration.publication import published
from onex_platform.projections.reader import ProjectionReaderRegistration
from onex_platform.records.wrapping import Wrapper
from onex_platform.snapshots.snapshot_records import version_in
from onex_platform.snapshots.topic_config import ModelSnapshotTopicConfig
from onex_platform.topics.signals import impatient_producer, wrapped

_COLUMNS = "epoch, begun_at, steps, ended_at, stopped_at"
_STEPS = TypeAdapter(dict[str, datetime])
# Records that were written in the second in which the life began are looked at, too.
_BEFORE = timedelta(seconds=5)
_KEPT = timedelta(days=7)


def last_life(cursor: Cursor, domain: str) -> Life | None:
    """The life that goes on, or the last one."""
    return next(iter(lives(cursor, domain, 1)), None)


def lives(cursor: Cursor, domain: str, most: int) -> Iterator[Life]:
    """Lives, newest first."""
    rows = cursor.execute(
        f"SELECT {_COLUMNS} FROM canary_lives WHERE domain = %s"  # noqa: S608 - constant columns
        " ORDER BY epoch DESC LIMIT %s",
        [domain, most],
    )
    for row in rows.fetchall():
        yield Life(
            row.epoch, row.begun_at, _STEPS.validate_python(row.steps), row.ended_at, row.stopped_at
        )


def live_on(platform: PlatformContext, now: datetime) -> Life | None:
    """Go as far as the life can go now, or begin the next one; None: there is nothing to do."""
    platform = platform_now(platform)
    period = timedelta(seconds=platform.settings.canary.period_seconds)
    with platform.database.transaction() as cursor:
        last = last_life(cursor, platform.domain)
    if last is None or last.ended_at is not None:
        if not is_due(last, now, period):
            return None
        last = _begun(platform, last, now)
    life = _advanced(platform, last)
    if is_stuck(life, now, period):
        missing = life.next_step
        life = replace(life, ended_at=now, stopped_at=missing.name if missing else None)
        _note(platform, life)
    return life


def _begun(platform: PlatformContext, last: Life | None, now: datetime) -> Life:
    life = Life(next_epoch(last, now), now)
    with effect("canaries.begin"), platform.database.transaction() as cursor:
        cursor.execute(
            "INSERT INTO canary_lives (domain, epoch, begun_at) VALUES (%s, %s, %s)"
            " ON CONFLICT DO NOTHING",
            [platform.domain, life.epoch, life.begun_at],
        )
        # Somebody else may have begun one meanwhile: then it is that one that goes on.
        begun = last_life(cursor, platform.domain) or life
        cursor.execute(
            "DELETE FROM canary_lives WHERE domain = %s AND begun_at < %s",
            [platform.domain, now - _KEPT],
        )
    return begun


def _advanced(platform: PlatformContext, life: Life) -> Life:
    while (step := life.next_step) is not None:
        at = _said_at(platform, step.says, life) if step.says else _seen_at(platform, step, life)
        if at is None:
            return life
        life = replace(life, steps={**life.steps, step.name: at})
        if life.next_step is None:
            life = replace(life, ended_at=at)
        _note(platform, life)
    return life


def _note(platform: PlatformContext, life: Life) -> None:
    steps = {name: at.isoformat() for name, at in life.steps.items()}
    with effect("canaries.note"), platform.database.transaction() as cursor:
        # Of two ticks at once, the one that has come further counts.
        cursor.execute(
            "UPDATE canary_lives SET steps = steps || %s::jsonb, ended_at = %s, stopped_at = %s"
            " WHERE domain = %s AND epoch = %s AND ended_at IS NULL",
            [json.dumps(steps), life.ended_at, life.stopped_at, platform.domain, life.epoch],
        )


def _said_at(platform: PlatformContext, kind: EnumEventKind, life: Life) -> datetime:
    """Send it; when the broker appended it."""
    envelope = said(kind, life, datetime.now(UTC)).model_dump_json()
    with effect("canaries.say"), published(platform.database, platform.catalogue) as catalogue:
        wrapper = Wrapper(platform.settings)
        records = wrapped(wrapper, catalogue.outlets(kind), CANARY_NODE, envelope)
        with impatient_producer(platform.settings) as producer:
            appended = [send_one(producer, record) for record in records]
        return appended[0].at


def _seen_at(platform: PlatformContext, step: Step, life: Life) -> datetime | None:
    """When what the step waits for was seen; None: it is not there yet."""
    return datetime.now(UTC) if _LOOKS[step.name](platform, life) else None


def _is_asked(platform: PlatformContext, life: Life) -> bool:
    """Whether the registry has asked for an acknowledgement, on the topic that nodes read."""
    topic = platform.catalogue.for_kind(EnumEventKind.ACK_REQUESTED).topic
    return any(_is_about(message.value(), life) for message in _records(platform, topic, life))


def _is_about(value: bytes | None, life: Life) -> bool:
    try:
        payload = json.loads(value or b"")["payload"]
        return bool(payload["node_id"] == CANARY_NODE and payload["epoch"] == life.epoch)
    except (ValueError, KeyError, TypeError):
        return False


def _is_registered(platform: PlatformContext, life: Life) -> bool:
    row = _row(platform, life)
    return row is not None and row.current_state.is_active()


def _is_alive(platform: PlatformContext, life: Life) -> bool:
    """Whether this life's heartbeat has moved the row; the broker's clock dates both."""
    row = _row(platform, life)
    beaten = life.steps["beaten"]
    return row is not None and row.last_heartbeat_at is not None and row.last_heartbeat_at >= beaten


def _is_published(platform: PlatformContext, life: Life) -> bool:
    """Whether the topic has the row's version, or a later one."""
    row = _row(platform, life)
    environment = platform.settings.environment
    topic = ModelSnapshotTopicConfig.default(platform.catalogue, environment).topic
    return row is not None and any(
        (version_in(message.headers()) or 0) >= row.row_version
        for message in _records(platform, topic, life)
        if message.key() == str(CANARY_ID).encode()
    )


def _is_deregistered(platform: PlatformContext, life: Life) -> bool:
    row = _row(platform, life)
    return row is not None and row.is_closed()


_LOOKS = {
    "ack_requested": _is_asked,
    "registered": _is_registered,
    "alive": _is_alive,
    "published": _is_published,
    "deregistered": _is_deregistered,
}


def _row(platform: PlatformContext, life: Life) -> Any:
    """The canary's row, if it is of this life."""
    reader = ProjectionReaderRegistration(platform.database)
    row = reader.get_entity_state(CANARY_ID, platform.domain, include_deregistered=True)
    return row if row is not None and row.epoch == life.epoch else None


def _records(platform: PlatformContext, topic: str, life: Life) -> Iterator[Any]:
    """What came into the topic since the life began."""
    since = life.begun_at - _BEFORE
    start = offsets_at(platform.kafka.admin(), topic, since)
    return read_to_end(platform.settings, [topic], start)
