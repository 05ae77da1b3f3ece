"""When the service was last proved right: noted by whoever made a proof, read by `onex status`."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from onex_platform.checks import Verdict
from onex_platform.context import PlatformContext


class Proof(NamedTuple):
    """The last proof of its name."""

    name: str
    proved_at: datetime
    passed: bool
    says: str


def note_proof(platform: PlatformContext, name: str, verdict: Verdict) -> None:
    """Keep what a proof came to, in the place of the one before."""
    with platform.database.transaction() as cursor:
        cursor.execute(
            "INSERT INTO proofs (domain, name, passed, says) VALUES (%s, %s, %s, %s)"
            " ON CONFLICT (domain, name) DO UPDATE"
            " SET proved_at = now(), passed = excluded.passed, says = excluded.says",
            [platform.domain, name, verdict.passed, verdict.description],
        )


def last_proofs(platform: PlatformContext) -> list[Proof]:
    with platform.database.transaction() as cursor:
        rows = cursor.execute(
            "SELECT name, proved_at, passed, says FROM proofs WHERE domain = %s ORDER BY name",
            [platform.domain],
        )
        return [Proof(*row) for row in rows]
