"""Which topics a retrying consumer works with, when it tries again, and how much may wait."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Self

from onex_platform.base.errors import ConfigurationError
from onex_platform.base.settings import Settings
from onex_platform.topics.contract import TopicContract
from onex_platform.topics.grammar import parse_logical, physical

_MS = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Limits:
    """Durations in milliseconds, and how much one lane keeps in memory."""

    tiers: tuple[int, ...]
    # Beyond either, the source pauses until some of what waits is handled.
    waiting_records: int = 10_000
    waiting_bytes: int = 64 * 1024 * 1024
    # What still counts is written again before so many entries lie behind it, which a restart
    # would read, and before `rty` deletes it (004: after 7 days).
    carry_entries: int = 100_000
    carry_after: int = timedelta(days=1) // _MS
    # Between two attempts to write to a topic that refused.
    refusal_pause: int = 5_000

    def __post_init__(self) -> None:
        if not self.tiers or min(self.tiers) <= 0:
            raise ConfigurationError(
                f"tiers={self.tiers} are no waiting times.", hint="Name at least one, above zero."
            )


@dataclass(frozen=True, slots=True)
class DeliveryConfig:
    """One group's delivery of one topic."""

    source: str
    retry: str
    dead_letters: str
    group: str
    limits: Limits = field(repr=False)
    # How long nothing is tried after an outage, and how often positions are committed.
    outage_pause_seconds: float = 5.0
    commit_seconds: float = 1.0
    # Between two signs of life, for a consumer that gives them.
    beat_seconds: float = 10.0

    @classmethod
    def from_contract(
        cls, contract: TopicContract, group: str, naming: Callable[[str], str]
    ) -> Self:
        """What the topic's contract says; `naming` is usually `broker_names`.

        A topic without `retry` or `dead_letters` is refused.
        """
        if contract.retry is None or contract.dead_letters is None:
            missing = "retry" if contract.retry is None else "dead_letters"
            raise ConfigurationError(
                f"Topic {contract.topic} has no {missing} in its contract, so nothing may wait.",
                hint="Name both in its contract, or consume it without retries.",
            )
        return cls(
            source=naming(contract.topic),
            retry=naming(contract.retry.topic),
            dead_letters=naming(contract.dead_letters),
            group=group,
            limits=Limits(tuple(tier // _MS for tier in contract.retry.tiers)),
        )


def broker_names(settings: Settings, home: str) -> Callable[[str], str]:
    """What the broker calls a contract's topic, in the environment and for the tenant of the
    settings; `home` is the tenant whose names carry no prefix."""

    def naming(topic: str) -> str:
        where = {"environment": settings.environment, "tenant": settings.tenant}
        return str(physical(parse_logical(topic), **where, home=home))

    return naming
