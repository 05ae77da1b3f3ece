"""Who has given signs of life, and who is missed: read from their topic, kept in PostgreSQL.

A look reads no further back than twice the silence that is allowed. Whoever was heard in it is
alive; of whoever was not, the book says when it was heard last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from onex_platform.base.faults import effect
from onex_platform.base.telemetry import get_logger
from onex_platform.context import PlatformContext
from onex_platform.delivery.lease_heartbeats import LEASE_HEARTBEAT
from onex_platform.engines.kafka.clients import read_to_end
from onex_platform.engines.kafka.group_offsets import offsets_at
from onex_platform.engines.kafka.topic_admin import topic_names
from onex_platform.engines.postgres.database import Cursor
from onex_platform.health.canaries.troubles import Trouble
from onex_platform.topics.schemas.annotated_fields import SchemaError
from onex_platform.topics.schemas.published_values import schema_of, topic_of

_KEPT = timedelta(days=2)  # of those that have ended; as long as the topic keeps theirs


@dataclass(frozen=True, slots=True)
class LeaseBeat:
    """A sign of life: of whom, when, and whether it was the last one on purpose."""

    lease_name: str
    beaten_at: datetime
    holder: str
    fence: int | None = None
    is_last: bool = False

    def is_missed(self, now: datetime, silence: timedelta) -> bool:
        return not self.is_last and now - self.beaten_at > silence


def newest(known: Mapping[str, LeaseBeat], heard: Iterable[LeaseBeat]) -> dict[str, LeaseBeat]:
    """The newest sign of each name. Whoever lost a lease says nothing of it any more, so a farewell
    that comes late does not end its successor."""
    found = dict(known)
    for beat in heard:
        before = found.get(beat.lease_name)
        if before is None or _rank(beat) >= _rank(before):
            found[beat.lease_name] = beat
    return found


def look_at_leases(platform: PlatformContext, now: datetime) -> dict[str, LeaseBeat]:
    """What is known by now of each name; nothing is noted."""
    with platform.database.transaction() as cursor:
        known = {beat.lease_name: beat for beat in _noted(cursor)}
    return newest(known, _heard(platform, now))


def note_leases(platform: PlatformContext, beats: Mapping[str, LeaseBeat], now: datetime) -> None:
    """Remember the newest sign of each, whoever else is looking; forget those long ended."""
    with effect("canaries.note_beats"), platform.database.transaction() as cursor:
        for beat in sorted(beats.values(), key=lambda beat: beat.lease_name):
            cursor.execute(
                "INSERT INTO lease_beats AS known"
                " (lease_name, beaten_at, holder, fence, is_last) VALUES (%s, %s, %s, %s, %s)"
                " ON CONFLICT (lease_name) DO UPDATE SET beaten_at = excluded.beaten_at,"
                " holder = excluded.holder, fence = excluded.fence, is_last = excluded.is_last"
                " WHERE (coalesce(known.fence, 0), known.beaten_at)"
                " <= (coalesce(excluded.fence, 0), excluded.beaten_at)",
                [beat.lease_name, beat.beaten_at, beat.holder, beat.fence, beat.is_last],
            )
        cursor.execute(
            "DELETE FROM lease_beats WHERE is_last AND beaten_at < %s",
            [now - _KEPT],
        )


def forget_lease(cursor: Cursor, lease_name: str) -> int:
    """Miss nobody of this name, until it gives a sign again; whether it was known."""
    cursor.execute("DELETE FROM lease_beats WHERE lease_name = %s", [lease_name])
    return cursor.rowcount


def missed_leases(
    beats: Mapping[str, LeaseBeat], now: datetime, silence: timedelta
) -> Iterator[Trouble]:
    """Those that gave signs of life and give none any more, as they are told."""
    for beat in beats.values():
        if beat.is_missed(now, silence):
            seconds = round((now - beat.beaten_at).total_seconds())
            yield Trouble(
                f"lease {beat.lease_name}",
                f"{beat.lease_name} has given no sign of life for {seconds} s; its last holder was "
                f"{beat.holder or 'unnamed'}.",
                {
                    "lease": beat.lease_name,
                    "holder": beat.holder,
                    "fence": beat.fence,
                    "seconds": seconds,
                },
            )


def _rank(beat: LeaseBeat) -> tuple[int, datetime]:
    return beat.fence or 0, beat.beaten_at


def _noted(cursor: Cursor) -> Iterator[LeaseBeat]:
    rows = cursor.execute("SELECT lease_name, beaten_at, holder, fence, is_last FROM lease_beats")
    return (LeaseBeat(*row) for row in rows)


def _heard(platform: PlatformContext, now: datetime) -> Iterator[LeaseBeat]:
    """What the topic says of the last time; nothing where a cluster has not got it."""
    settings, admin = platform.settings, platform.kafka.admin()
    topic = topic_of(str(LEASE_HEARTBEAT), settings.environment)
    if topic not in topic_names(admin):
        return
    window = timedelta(seconds=2 * settings.health.lease_silence_seconds)
    schema, start = schema_of(LEASE_HEARTBEAT), offsets_at(admin, topic, now - window)
    for message in read_to_end(settings, [topic], start):
        try:
            said = schema.decode(message.value() or b"")
            yield LeaseBeat(
                said["lease_name"],
                datetime.fromisoformat(said["occurred_at"]),
                said["holder"],
                said["fence"],
                said["is_last"],
            )
        except (SchemaError, ValueError) as error:
            get_logger(__name__).warning("canaries.unreadable_beat", error=str(error))
