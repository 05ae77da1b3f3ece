"""What people ask a replay for, in words: a moment, a node, a stretch of time.

Commands and the launchpad take the same words, and refuse the same ones.
"""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from onex_platform.base.errors import ConfigurationError
from onex_platform.base.settings import Settings
from onex_platform.domain.identity import identify_node
from onex_platform.domain.order import position_at
from onex_platform.projections.fold.refold import EVERYTHING, Scope

# Positions count from 1970 on and end, with 63 bits, in 2248.
_YEARS = range(1971, 2248)
_NO_END = 2**63 - 1


def parse_moment(text: str) -> datetime:
    """An instant of the log, in UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(
            f"{text!r} is no time; write it like 2026-03-01T12:00:00Z."
        ) from None
    if moment.tzinfo is None:
        raise ConfigurationError(f"{text!r} has no time zone; add Z for UTC.")
    if moment.year not in _YEARS:
        raise ConfigurationError(f"{text!r} is outside of the log, which begins after 1970.")
    return moment.astimezone(UTC)


def entity_of(settings: Settings, node: str, tenant: str | None) -> UUID:
    """The entity that is meant by a UUID in any spelling, or by a plain-text id of a tenant."""
    try:
        return identify_node(node, tenant or settings.tenant).entity_id
    except ValueError as error:
        raise ConfigurationError(f"{error}.") from None


def require_node_of(node: str | None, tenant: str | None) -> None:
    """Refuse a tenant that belongs to no node."""
    if tenant is not None and node is None:
        raise ConfigurationError(
            "A tenant only tells whose node is meant.", hint="Name the node, or leave it out."
        )


def scope_of(
    settings: Settings,
    *,
    node: str | None = None,
    tenant: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> Scope:
    """One node, or those that events from `since` on and before `until` touched, or all."""
    require_node_of(node, tenant)
    if node is not None:
        if since or until:
            raise ConfigurationError("A node and a time window exclude each other; give one.")
        return Scope(nodes=frozenset({entity_of(settings, node, tenant)}))
    if since and until and until <= since:
        raise ConfigurationError(
            f"The window's end {until.isoformat()} is not after its start {since.isoformat()}."
        )
    if since is None and until is None:
        return EVERYTHING
    start = 0 if since is None else position_at(since)
    return Scope(window=(start, _NO_END if until is None else position_at(until)))
