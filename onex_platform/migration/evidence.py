"""Measures on the broker what the conditions of a phase are about; changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from onex_platform.base.settings import Settings
from onex_platform.domain.headers import SNAPSHOT_VERSION
from onex_platform.engines.kafka.access import Right, rights
from onex_platform.engines.kafka.clients import KafkaAdmin, Positions, open_admin, read_to_end
from onex_platform.engines.kafka.group_offsets import (
    committed,
    end_offsets,
    first_offsets,
    member_count,
    offsets_at,
)
from onex_platform.engines.kafka.usage import reading_groups
from onex_platform.engines.postgres.database import Database
from onex_platform.governance.provision import create_topics
from onex_platform.migration import phase_table
from onex_platform.migration.mirror import headers_of, id_of
from onex_platform.migration.move import Move
from onex_platform.migration.phase_table import MoveState, by_partition
from onex_platform.migration.phases import Evidence, GroupEvidence
from onex_platform.migration.sides import Comparison, Seen, compare, compare_latest
from onex_platform.topics.migration_intent import EnumMigrationPhase
from onex_platform.topics.patterns import Resource

_HOUR = timedelta(hours=1)
_EVERYBODY = "User:*"

# The next offsets of a topic in the log, by partition; None if the log does not read the topic.
Archived = Callable[[str], Mapping[int, int] | None]


@dataclass(frozen=True)
class Observer:
    """Asks the broker and the database about a move."""

    settings: Settings
    database: Database
    archived: Archived

    def evidence(self, move: Move, state: MoveState, now: datetime) -> Evidence:
        """What the conditions of the state's phase are about."""
        phase = state.phase
        about: dict[str, Any] = {}
        with open_admin(self.settings) as admin:
            if phase is EnumMigrationPhase.ASSESS:
                about |= self._before(admin, move)
            if phase in (EnumMigrationPhase.MOVE, EnumMigrationPhase.FREEZE):
                about["groups"] = self._groups(admin, move)
                about["strange_groups"] = _strangers(admin, move)
            if phase.writes_both:
                about["unmirrored"] = self._unmirrored(admin, move)
            if phase is EnumMigrationPhase.FREEZE:
                about |= self._frozen(admin, move, state)
        if phase.writes_both or phase is EnumMigrationPhase.FREEZE:
            about["sides"] = self.sides(move, state, now)
        return Evidence(
            now=now,
            entered_at=state.entered_at,
            lasts=max(move.intent.lasts, move.intent.window),
            retention=move.source.retention or move.intent.window,
            lag_records=move.intent.lag_records,
            **about,
        )

    def inventory(self, move: Move, now: datetime) -> dict[str, Any]:
        """Who reads the source and where, and how much is written: for whoever has to go back."""
        topic = move.origin
        with open_admin(self.settings) as admin:
            ends, hour = end_offsets(admin, topic), offsets_at(admin, topic, now - _HOUR)
            groups = {
                group: by_partition(committed(admin, group, topic))
                for group in sorted(reading_groups(admin, [topic])[topic])
            }
        written = sum(ends.values()) - sum(hour.values())
        return {"groups": groups, "ends": by_partition(ends), "records in the last hour": written}

    def sides(self, move: Move, state: MoveState, now: datetime) -> Comparison:
        """Compare what both topics have of the last window; all that is kept, once frozen."""
        intent = move.intent
        frozen = state.phase is EnumMigrationPhase.FREEZE
        since = state.dual_since or now
        span = move.retention if frozen else intent.window
        if span is not None:
            since = max(since, now - span)
        since_ms, until_ms = _ms(since), _ms(now if frozen else now - intent.settle)
        if move.source.is_compacted:
            if frozen:  # both agreed when it was, and what it has is being superseded
                return Comparison()
            here, there = self._states(move.origin), self._states(move.destination)
            return compare_latest(here, there, until_ms=until_ms)
        source, target = (
            self._seen(topic, since - intent.settle) for topic in (move.origin, move.destination)
        )
        both_ways = intent.complete == "both" and not frozen
        return compare(source, target, since_ms=since_ms, until_ms=until_ms, both_ways=both_ways)

    def _seen(self, topic: str, since: datetime) -> list[Seen]:
        with open_admin(self.settings) as admin:
            start = offsets_at(admin, topic, since)
        return [
            Seen(id_of(message), _key(message.key()), message.timestamp()[1])
            for message in read_to_end(self.settings, [topic], start)
        ]

    def _states(self, topic: str) -> Iterator[Seen]:
        """All of a snapshot topic; a record's event is the version of its row."""
        for message in read_to_end(self.settings, [topic]):
            version = dict(headers_of(message)).get(SNAPSHOT_VERSION)
            named = f"version {version.decode()}" if isinstance(version, bytes) else id_of(message)
            key, at_ms = _key(message.key()), message.timestamp()[1]
            yield Seen(named, key, at_ms, removes=message.value() is None)

    def _before(self, admin: KafkaAdmin, move: Move) -> dict[str, Any]:
        topic = move.destination
        found = create_topics(self.settings, move.catalogue, only={topic}, dry_run=True)
        missing = () if topic in found.existing else (f"{topic} does not exist",)
        with self.database.transaction() as cursor:
            retired = phase_table.is_retired(cursor, move.destination)
        allowed = rights(admin) or set()
        return {
            "drift": (*missing, *map(str, found.drift), *found.impossible),
            "missing_rights": _lacking(allowed, move.origin, move.destination),
            "strange_groups": _strangers(admin, move),
            "retired_name": retired,
        }

    def _groups(self, admin: KafkaAdmin, move: Move) -> tuple[GroupEvidence, ...]:
        with self.database.transaction() as cursor:
            handed = phase_table.migrated_groups(cursor, move.origin)
        ends = end_offsets(admin, move.destination)
        found = []
        for group, successor in sorted(move.intent.groups.items()):
            stopped = handed[group].stopped_at if group in handed else {}
            now_at = by_partition(committed(admin, group, move.origin))
            position = committed(admin, successor, move.destination)
            found.append(
                GroupEvidence(
                    group,
                    successor,
                    handed_over=group in handed,
                    members=member_count(admin, group),
                    moved=sum(max(0, at - stopped.get(p, at)) for p, at in now_at.items()),
                    lag=sum(end - min(end, position.get(place, 0)) for place, end in ends.items()),
                )
            )
        return tuple(found)

    def _frozen(self, admin: KafkaAdmin, move: Move, state: MoveState) -> dict[str, Any]:
        topic = move.origin
        ends = end_offsets(admin, topic)
        allowed = rights(admin)
        grown = by_partition(ends)
        return {
            "can_be_written": None if allowed is None else write_denial(topic) not in allowed,
            "appended": sum(at - state.frozen_at.get(p, 0) for p, at in grown.items()),
            "unarchived": self._unarchived(move, ends),
        }

    def _unarchived(self, move: Move, ends: Positions) -> int | None:
        reached = self.archived(move.origin) if move.source.registration_input else None
        if reached is None:
            return None
        return sum(max(0, end - reached.get(part, 0)) for (_, part), end in ends.items())

    def _unmirrored(self, admin: KafkaAdmin, move: Move) -> int:
        """Records that the source has no more and the mirror never saw."""
        source = move.origin
        with self.database.transaction() as cursor:
            reached = phase_table.mirror_positions(cursor, source, move.destination)
        oldest = first_offsets(admin, source)
        return sum(max(0, first - reached.get(place, first)) for place, first in oldest.items())


def _strangers(admin: KafkaAdmin, move: Move) -> tuple[str, ...]:
    """Groups that read the source and that the intent says nothing about."""
    readers = reading_groups(admin, [move.origin])[move.origin]
    return tuple(sorted(readers - {*move.intent.groups, *move.intent.left_behind}))


def write_denial(topic: str) -> Right:
    """Nobody may write the topic. A denial stands above every right, whatever pattern grants it,
    and leaves the accounts' own rights as contracts and policy have them."""
    return Right(_EVERYBODY, "topic", "literal", topic, "write", denies=True)


def _lacking(found: Collection[Right], source: str, target: str) -> tuple[str, ...]:
    """What somebody may do with the source and not with the target."""
    here, there = _on(found, source), _on(found, target)
    return tuple(f"{who} may {what}" for who, what in sorted(here - there))


def _on(found: Collection[Right], topic: str) -> set[tuple[str, str]]:
    return {
        (right.principal, right.operation)
        for right in found
        if right.resource == "topic"
        and not right.denies
        and Resource("literal" if right.pattern == "literal" else "prefixed", right.name).covers(
            topic
        )
    }


def _key(key: str | bytes | None) -> bytes | None:
    return key.encode() if isinstance(key, str) else key


def _ms(moment: datetime) -> int:
    return int(moment.astimezone(UTC).timestamp() * 1000)
