"""What a batch is made of: who decides, which rows it changed, which events it refused."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from onex_platform.domain.decider import RegistrationPolicy
from onex_platform.domain.events import LogEvent
from onex_platform.domain.projection import ModelRegistrationProjection
from onex_platform.domain.states import EnumOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Decider:
    """A policy at work at one moment.

    `known_facts` holds the ids of facts that earlier batches emitted and must not be repeated.
    """

    policy: RegistrationPolicy
    now: datetime
    known_facts: Container[UUID] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChange:
    """A row after the batch, and which part of it the batch touched."""

    row: ModelRegistrationProjection
    wide: bool  # something other than heartbeats was applied
    liveness: bool  # the last heartbeat or the liveness deadline may have moved


@dataclass(frozen=True, slots=True)
class Refusal:
    """An event that had no effect on the row it was about, for the audit."""

    event: LogEvent
    outcome: EnumOutcome
    reason: str
