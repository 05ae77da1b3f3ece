"""When a failing record is tried again, and when it is given up. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from onex_platform.delivery.entries import Attempts, EnumFailure
from onex_platform.delivery.work import Failure


def after_failure(
    tiers: Sequence[int], attempts: int, failure: Failure, first_seen: int, now: int
) -> Attempts:
    """What is known of a record after so many failed attempts; one that is given up is due now."""
    found = Attempts(attempts, now, first_seen, now, failure.kind, failure.reason)
    if is_given_up(tiers, found):
        return found
    return found._replace(due=now + tiers[attempts - 1])


def is_given_up(tiers: Sequence[int], attempts: Attempts) -> bool:
    """Whether no tier is left, or none would help."""
    return attempts.failure is EnumFailure.PERMANENT or attempts.failures > len(tiers)
