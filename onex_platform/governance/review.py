"""The quarterly review: what nobody uses, and what falls due before the next one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from onex_platform.engines.kafka.clients import open_admin
from onex_platform.engines.kafka.topic_admin import topic_names
from onex_platform.engines.kafka.usage import last_records, reading_groups
from onex_platform.governance.governed import Governed
from onex_platform.topics.catalogue import Catalogue
from onex_platform.topics.policy import Policy

QUARTER = timedelta(days=90)
_PRUNED = frozenset({"cmd", "qrs"})


@dataclass(frozen=True)
class Due:
    """Something that a person has to decide about."""

    kind: str
    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.kind}  {self.name}  {self.reason}"


def review(governed: Governed) -> list[Due]:
    """Ask the cluster who uses what; nothing is changed."""
    names = {
        name
        for _, _, name in governed.policy.topics_in(
            (c.name for c in governed.catalogue if c.stream_class in _PRUNED),
            governed.settings.environment,
        )
    }
    with open_admin(governed.settings) as admin:
        there = names & topic_names(admin)
        written, read = last_records(admin, there), reading_groups(admin, there)
    now = datetime.now(UTC)
    return [
        *unused(there, written, read, now),
        *falling_due(governed.catalogue, governed.policy, now.date()),
    ]


def unused(
    names: Iterable[str],
    written: Mapping[str, datetime],
    read: Mapping[str, set[str]],
    now: datetime,
) -> Iterator[Due]:
    """Topics of commands and queries without a record for a quarter, or without any group."""
    for name in sorted(names):
        last = written.get(name)
        if last is None or last < now - QUARTER:
            since = "ever" if last is None else f"since {last:%Y-%m-%d}"
            yield Due("unused topic", name, f"no record {since}")
        elif not read.get(name):
            yield Due("unread topic", name, "no group has read it")


def falling_due(catalogue: Catalogue, policy: Policy, today: date) -> Iterator[Due]:
    """Exceptions and deprecations that end before the next review, and keys to be renewed by it."""
    horizon = today + QUARTER
    for exception in policy.exceptions:
        if exception.expires <= horizon:
            reason = f"{exception.rule} is excused until {exception.expires}"
            yield Due("exception", exception.topic, reason)
    for contract in catalogue:
        ends = contract.deprecation.ends
        if ends is not None and ends <= horizon:
            reason = f"ends on {ends}; {contract.deprecation.successor} follows"
            yield Due("deprecation", contract.topic, reason)
        # Specification 004 has the keys of encrypted fields renewed with every review.
        if contract.encryption != "none":
            yield Due("keys", contract.topic, "its fields are encrypted: renew their keys")
