"""What entering a phase does, and what going back from it does.

| phase | entering it | going back from it |
| --- | --- | --- |
| dual | the mirror catches up, then the relay writes both | relay and mirror stop |
| move | nothing: groups are handed over one by one | nothing: groups were handed back |
| freeze | WRITE is denied on the source, the mirror drains | WRITE is allowed, the source filled |
| retired | the source is deleted, its name is kept from use | the source is made anew and filled |

Each step may be taken twice, and the last one enters the phase. The mirror passes once before the
relay is stopped, for the bulk, and once more while nobody publishes, for the rest: so events of one
key never overtake each other when the relay begins to write a topic.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from onex_platform.base.errors import ConfigurationError, InfraError
from onex_platform.base.faults import effect
from onex_platform.base.settings import Settings
from onex_platform.base.telemetry import shortened
from onex_platform.engines.kafka.access import grant, revoke, rights
from onex_platform.engines.kafka.clients import Positions, open_admin, written_positions
from onex_platform.engines.kafka.group_offsets import committed, end_offsets, first_offsets
from onex_platform.engines.kafka.topic_admin import delete, topic_names
from onex_platform.engines.kafka.usage import reading_groups
from onex_platform.engines.postgres.database import Cursor, Database
from onex_platform.governance.provision import create_topics
from onex_platform.migration import phase_table
from onex_platform.migration.evidence import write_denial
from onex_platform.migration.mirror import Route, mirror_once
from onex_platform.migration.move import Move
from onex_platform.topics.migration_intent import EnumMigrationPhase as Phase

_PAUSE_SECONDS = 0.1


@dataclass(frozen=True)
class PhaseSteps:
    """The effects of one move's changes."""

    settings: Settings
    database: Database
    move: Move

    @property
    def forward(self) -> Route:
        intent = self.move.intent
        return Route(self._source, self._target, intent.lift, intent.settle)

    @property
    def backward(self) -> Route:
        intent = self.move.intent
        return Route(self._target, self._source, intent.back, intent.settle)

    def enter(self, phase: Phase) -> None:
        """Go forward into the phase."""
        match phase:
            case Phase.DUAL:
                self._begin_mirrors((self.forward, self._needed_from()))
                self._drain(self.forward)
                with self._entering(phase):
                    self._drain(self.forward)
            case Phase.FREEZE:
                self._drain(self.forward)
                with self._entering(phase) as cursor:
                    self._deny_writing()
                    self._await_commits()
                    # Whatever is appended behind what was drained is seen later.
                    phase_table.note_freeze(cursor, self._source, self._drain(self.forward))
                    if not self.move.source.is_compacted:
                        phase_table.move_mirror(cursor, self._source, self._ends(self._target))
            case Phase.RETIRED:
                self._retire_name()
                with open_admin(self.settings) as admin, effect("migration.delete_source"):
                    delete(admin, self._source)
                with self._entering(phase):
                    pass
            case _:
                with self._entering(phase):
                    pass

    def leave(self, phase: Phase) -> None:
        """Go back from the phase to the one before it; from the first one, remove the target."""
        match phase:
            case Phase.ASSESS:
                self._remove_empty_target()
            case Phase.DUAL:
                with self._mirrors_stopped(), self._entering(Phase.ASSESS) as cursor:
                    self._forget_mirrors(cursor)
            case Phase.MOVE:
                with self._entering(Phase.DUAL):
                    pass
            case Phase.FREEZE:
                self._allow_writing()
                self._drain(self.backward)
                with self._entering(Phase.MOVE):
                    self._drain(self.backward)
            case Phase.RETIRED:
                self._make_source_anew()
                self._allow_writing()
                refill = replace(self.backward, refills=True)
                self._drain(refill)
                with self._entering(Phase.FREEZE) as cursor:
                    self._drain(refill)
                    self._deny_writing()
                    phase_table.note_freeze(cursor, self._source, self._ends(self._source))
                    phase_table.recall_name(cursor, self._source)

    @property
    def _source(self) -> str:
        return self.move.origin

    @property
    def _target(self) -> str:
        return self.move.destination

    @contextmanager
    def _entering(self, phase: Phase) -> Iterator[Cursor]:
        """The last step: while the block lasts, and until the phase is entered, nobody publishes
        what phases decide about."""
        with effect("migration.enter_phase"), phase_table.phases_alone(self.database) as cursor:
            yield cursor
            phase_table.end_change(cursor, self._source, phase)

    def _needed_from(self) -> Positions:
        """Where the slowest group of the source is; without groups, what is past is past."""
        with open_admin(self.settings) as admin:
            needed, first = end_offsets(admin, self._source), first_offsets(admin, self._source)
            for group in self.move.intent.groups:
                position = committed(admin, group, self._source)
                for place, oldest in first.items():
                    needed[place] = min(needed[place], max(position.get(place, 0), oldest))
        return needed

    def _begin_mirrors(self, *starts: tuple[Route, Positions]) -> None:
        """Set each mirror to its beginning, unless it has begun. A compacted topic has none: the
        registry writes both sides, and its sweep brings what one of them lacks."""
        if self.move.source.is_compacted:
            return
        with effect("migration.begin_mirror"), self.database.transaction() as cursor:
            for route, start in starts:
                if not phase_table.mirror_positions(cursor, route.origin, route.destination):
                    phase_table.move_mirror(cursor, route.destination, start)

    def _drain(self, route: Route) -> Positions:
        """Copy what there is now, until nothing of it waits for a producer that writes both: at
        most until it settled. Where that ended."""
        ends = self._ends(route.origin)
        while True:
            done = mirror_once(self.settings, self.database, route, ends)
            if done.stuck:
                raise InfraError(
                    f"Records can't be copied to {route.destination}: {shortened(done.stuck)}.",
                    hint="Mend the function that the intent names, or raise max_message in the "
                    "contract; the mirror goes on from there.",
                )
            if not done.waiting:
                return ends
            time.sleep(_PAUSE_SECONDS)

    def _await_commits(self) -> None:
        """Let the source show what its publisher has committed, and abort what a killed one left:
        until then it ends before that."""
        written = written_positions(self.settings, [self._source])
        while any(end < written[place] for place, end in self._ends(self._source).items()):
            time.sleep(_PAUSE_SECONDS)

    def _ends(self, topic: str) -> Positions:
        with open_admin(self.settings) as admin:
            return end_offsets(admin, topic)

    @contextmanager
    def _mirrors_stopped(self) -> Iterator[None]:
        """While the block lasts, no pass is under way that would note where it was."""
        with (
            phase_table.mirror_alone(self.database, self._source, self._target),
            phase_table.mirror_alone(self.database, self._target, self._source),
        ):
            yield

    def _forget_mirrors(self, cursor: Cursor) -> None:
        for route in (self.forward, self.backward):
            phase_table.forget_mirror(cursor, route.origin, route.destination)

    def _retire_name(self) -> None:
        """Keep the name from use before the topic goes; offsets of a topic that is made anew say
        nothing about the one before."""
        with (
            self._mirrors_stopped(),
            effect("migration.retire_name"),
            self.database.transaction() as cursor,
        ):
            phase_table.retire_name(cursor, self._source)
            self._forget_mirrors(cursor)

    def _make_source_anew(self) -> None:
        """The source as its contract says, and mirrors that will fill it and follow it. One that
        was not deleted after all has nothing that the target lacks."""
        move = self.move
        with open_admin(self.settings) as admin:
            is_there = self._source in topic_names(admin)
            create_topics(self.settings, move.catalogue, only={self._source, self._target})
            followed_from = (end_offsets if is_there else first_offsets)(admin, self._source)
            filled_from = first_offsets(admin, self._target)
        self._begin_mirrors((self.forward, followed_from), (self.backward, filled_from))

    def _deny_writing(self) -> None:
        """Take WRITE from everybody; a broker without authoriser can't, and a condition says so."""
        with open_admin(self.settings) as admin:
            if rights(admin) is not None:
                with effect("migration.deny_write"):
                    grant(admin, [write_denial(self._source)])

    def _allow_writing(self) -> None:
        with open_admin(self.settings) as admin:
            if rights(admin) is not None:
                with effect("migration.allow_write"):
                    revoke(admin, [write_denial(self._source)])

    def _remove_empty_target(self) -> None:
        with open_admin(self.settings) as admin:
            if self._target not in topic_names(admin):
                return
            records = sum(end_offsets(admin, self._target).values())
            groups = reading_groups(admin, [self._target])[self._target]
            if records or groups:
                readers = f", and {', '.join(sorted(groups))} read it" if groups else ""
                raise ConfigurationError(
                    f"{self._target} has had {records} records{readers}; it is not removed.",
                    hint="Only a target that nobody uses is removed; this one may stay.",
                )
            with effect("migration.remove_target"):
                delete(admin, self._target)
