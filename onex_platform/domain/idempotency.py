"""Idempotency: an event_id is let into the log once; the verdict is written there.

The ledger of ids is bounded in time. What it forgets it also refuses to judge: the intake parks an
event that reports a time before the ledger's floor, so pruning can't reopen a duplicate.
"""

from __future__ import annotations

from onex_platform.domain.events import EnumEventKind


def is_ledgered(kind: EnumEventKind) -> bool:
    """Heartbeats merge by maximum: they are idempotent by nature and stay out of the ledger."""
    return kind is not EnumEventKind.NODE_HEARTBEAT
