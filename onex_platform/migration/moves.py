"""Carries topics from phase to phase, and back; hands groups over; runs the mirror.

What holds, wherever it is stopped: a change is noted before its first effect and entered after its
last, and each effect may be done twice. So whoever was killed runs the same command again, or goes
back. Until a change is entered the platform publishes by the phase before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from onex_platform.base.errors import ConfigurationError
from onex_platform.base.faults import effect
from onex_platform.base.settings import Settings
from onex_platform.delivery.config import DeliveryConfig, broker_names
from onex_platform.engines.kafka.clients import open_admin
from onex_platform.engines.kafka.topic_admin import topic_names
from onex_platform.engines.postgres.database import Database
from onex_platform.migration import phase_table
from onex_platform.migration.evidence import Archived, Observer
from onex_platform.migration.handover import (
    Handover,
    Party,
    hand_over,
    plan_handover,
    require_nothing_waits,
)
from onex_platform.migration.mirror import MirrorAccount, mirror_once
from onex_platform.migration.move import Move, move_of
from onex_platform.migration.phase_steps import PhaseSteps
from onex_platform.migration.phase_table import MoveState
from onex_platform.migration.phases import BEFORE, NEXT, Condition, conditions, in_the_way
from onex_platform.topics.catalogue import Catalogue
from onex_platform.topics.migration_intent import EnumMigrationPhase as Phase
from onex_platform.topics.policy import load_policy


@dataclass(frozen=True)
class MoveStatus:
    """How far a move has come, and what keeps it there."""

    source: str
    target: str
    state: MoveState
    conditions: tuple[Condition, ...]


@dataclass(frozen=True)
class Order:
    """Who wants a change, why, and what is allowed besides."""

    by: str
    reason: str | None = None
    forced: bool = False
    deletes: str | None = None  # the name of the topic that may be deleted

    def __post_init__(self) -> None:
        if self.forced and not self.reason:
            raise ConfigurationError(
                "Forcing a change needs a reason.", hint="Give it with --reason; it is kept."
            )


class Migrator:
    """Knows every intended move of the catalogue."""

    def __init__(
        self, settings: Settings, database: Database, catalogue: Catalogue, archived: Archived
    ) -> None:
        self._settings = settings
        self._database = database
        self._catalogue = catalogue
        self._observer = Observer(settings, database, archived)

    def sources(self) -> list[str]:
        """The topics that are to be left."""
        return sorted(self._catalogue.intents)

    def status(self, source: str, now: datetime | None = None) -> MoveStatus:
        """Every condition of the present phase, measured now; changes nothing."""
        move, state = self._move_and_state(source)
        found: tuple[Condition, ...] = ()
        if state.changing_to is None:  # else the topics may stand between two phases
            evidence = self._observer.evidence(move, state, now or datetime.now(UTC))
            found = conditions(state.phase, evidence)
        return MoveStatus(move.origin, move.destination, state, found)

    def advance(self, source: str, order: Order, now: datetime | None = None) -> Phase:
        """Enter the next phase if everything holds that must; the phase that was entered.

        A change that was begun and not ended is ended: what had to hold did so when it began. Only
        before a topic is deleted all is measured once more.
        """
        move = self._move(source)
        with phase_table.change_alone(self._database, move.origin):
            return self._advance(move, order, now or datetime.now(UTC))

    def _advance(self, move: Move, order: Order, now: datetime) -> Phase:
        source = move.origin
        state = self._state(source)
        if state.phase not in NEXT:
            raise ConfigurationError(
                f"{source} is retired; there is no further phase.",
                hint="Remove its contract and the intent beside it.",
            )
        after = NEXT[state.phase]
        if state.changing_to not in (None, after):
            raise ConfigurationError(
                f"{source} is on its way back to {state.changing_to}.",
                hint=f"Finish that first: `onex migrate rollback {source}`.",
            )
        if after is Phase.RETIRED and order.deletes != source:
            raise ConfigurationError(
                f"Retiring {source} deletes the topic and all its records.",
                hint=f"Say so: --delete --name {source}",
            )
        if state.changing_to is None:
            self._judge_and_begin(move, state, order, now)
        elif after is Phase.RETIRED and self._exists(source):
            self._judged(move, state, order, now)
        self._steps(move).enter(after)
        return after

    def rollback(self, source: str, order: Order) -> Phase:
        """Go back one phase, also from a change that was not ended; the phase that is entered.

        In the first phase nothing is left to undo but an empty target, which is removed.
        """
        move = self._move(source)
        with phase_table.change_alone(self._database, move.origin):
            return self._go_back(move, order)

    def _go_back(self, move: Move, order: Order) -> Phase:
        source = move.origin
        state = self._state(source)
        phase = state.phase
        if state.changing_to in (phase, NEXT.get(phase, phase)):
            phase = NEXT.get(phase, phase)  # as far as that change came
        before = BEFORE.get(phase, Phase.ASSESS)
        if phase is not Phase.ASSESS:
            self._begin(move, (phase, before), order)
        if phase is Phase.MOVE:
            self._hand_all_back(source)
        self._steps(move).leave(phase)
        return before

    def plan_handover(self, source: str, group: str, *, back: bool = False) -> Handover:
        """Where the group's successor must begin, or the group itself on its way back."""
        move, state = self._move_and_state(source)
        if state.phase is not Phase.MOVE:
            raise ConfigurationError(
                f"Groups are handed over in the phase move; {source} is in {state.phase}.",
                hint=f"`onex migrate status {source}` says what is missing.",
            )
        if group not in move.intent.groups:
            raise ConfigurationError(
                f"The intent of {source} names no successor of group {group!r}.",
                hint=f"It names {', '.join(move.intent.groups) or 'no group'}; add it there.",
            )
        if (group in self._handed_over(source)) != back:
            said = "is not handed over" if back else "is handed over already"
            raise ConfigurationError(
                f"Group {group} {said}.", hint=f"`onex migrate status {source}` shows the groups."
            )
        old = Party(group, source)
        new = Party(move.intent.groups[group], move.destination)
        leaving, following = (new, old) if back else (old, new)
        left = move.target if back else move.source
        if left.retry is not None:
            naming = broker_names(self._settings, load_policy().home)
            delivery = DeliveryConfig.from_contract(left, leaving.group, naming)
            require_nothing_waits(self._settings, delivery)
        return plan_handover(self._settings, leaving, following, move.intent.settle)

    def handover(self, source: str, group: str, *, back: bool = False) -> Handover:
        """Hand a group's work to its successor, or back."""
        origin = self._move(source).origin
        with phase_table.change_alone(self._database, origin):
            return self._hand_over(origin, group, back=back)

    def _hand_over(self, source: str, group: str, *, back: bool) -> Handover:
        plan = self.plan_handover(source, group, back=back)
        hand_over(self._settings, plan)
        with effect("migration.note_handover"), self._database.transaction() as cursor:
            if back:
                phase_table.forget_handover(cursor, source, group)
            else:
                successor = plan.following.group
                phase_table.note_handover(cursor, source, group, successor, plan.stopped_at)
        return plan

    def mirror(self, source: str) -> MirrorAccount:
        """One pass of the mirror: forward, and backward where the source was filled again."""
        move, state = self._move_and_state(source)
        account = MirrorAccount()
        if state.phase.writes_both:
            steps = self._steps(move)
            for route in (steps.forward, steps.backward):
                account += mirror_once(self._settings, self._database, route)
        return account

    def _judged(
        self, move: Move, state: MoveState, order: Order, now: datetime
    ) -> tuple[Condition, ...]:
        """What was measured, if nothing of it is in the way."""
        source = move.origin
        found = conditions(state.phase, self._observer.evidence(move, state, now))
        if unmet := in_the_way(found, forced=order.forced):
            raise ConfigurationError(
                f"{source} can't leave {state.phase} yet: {'; '.join(map(str, unmet))}.",
                hint="A condition about loss can't be forced."
                if order.forced
                else f"`onex migrate status {source}` measures them again.",
            )
        return found

    def _judge_and_begin(self, move: Move, state: MoveState, order: Order, now: datetime) -> None:
        found = self._judged(move, state, order, now)
        seen: dict[str, Any] = {"conditions": [str(condition) for condition in found]}
        if state.phase is Phase.ASSESS:
            seen |= self._observer.inventory(move, now)
        waived = [condition for condition in found if not condition.holds]
        self._begin(move, (state.phase, NEXT[state.phase]), order, waived, seen)

    def _begin(
        self,
        move: Move,
        step: tuple[Phase, Phase],
        order: Order,
        waived: list[Condition] | None = None,
        evidence: dict[str, Any] | None = None,
    ) -> None:
        with effect("migration.begin_change"), self._database.transaction() as cursor:
            phase_table.begin_change(
                cursor,
                move.origin,
                move.destination,
                step,
                by=order.by,
                reason=order.reason,
                waived=waived or (),
                evidence=evidence,
            )

    def _exists(self, topic: str) -> bool:
        with open_admin(self._settings) as admin:
            return topic in topic_names(admin)

    def _hand_all_back(self, source: str) -> None:
        for group in self._handed_over(source):
            self._hand_over(source, group, back=True)

    def _handed_over(self, source: str) -> list[str]:
        with self._database.transaction() as cursor:
            return sorted(phase_table.migrated_groups(cursor, source))

    def _steps(self, move: Move) -> PhaseSteps:
        return PhaseSteps(self._settings, self._database, move)

    def _move(self, source: str) -> Move:
        return move_of(self._settings, self._catalogue, source)

    def _move_and_state(self, source: str) -> tuple[Move, MoveState]:
        move = self._move(source)
        return move, self._state(move.origin)

    def _state(self, source: str) -> MoveState:
        with self._database.transaction() as cursor:
            return phase_table.state_of(cursor, source)
