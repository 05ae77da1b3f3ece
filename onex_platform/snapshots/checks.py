"""The verdict on the snapshot topic: does it say what the rows say?"""

from __future__ import annotations

from collections.abc import Sequence

from onex_platform.base.telemetry import shortened
from onex_platform.checks import Number, Verdict
from onex_platform.snapshots.audit.comparison import TopicComparison
from onex_platform.snapshots.audit.sweep import Sweep
from onex_platform.snapshots.publish.relay import RelayAccount


def snapshot_topic_equals_projection(found: TopicComparison) -> Verdict:
    """Whether the last record of every entity is its row's, or is on its way."""
    named = [f"{fault.entity_id} ({fault.kind.value})" for fault in found.faults]
    return Verdict(
        not found.faults,
        f"{len(found.faults)} entities differ: {shortened(named)}."
        if found.faults
        else f"{found.equal} rows are in the topic as they are, {found.waiting} are on their way.",
        compared_numbers(found),
    )


def compared_numbers(found: TopicComparison) -> dict[str, Number]:
    """A comparison as metadata."""
    return {
        "rows": found.rows,
        "equal": found.equal,
        "waiting": found.waiting,
        "contents compared": found.contents,
        "foreign records": found.foreign_records,
        **{kind.replace("_", " "): count for kind, count in found.counts().items()},
    }


def swept_numbers(done: Sweep, too_large: Sequence[str] = ()) -> dict[str, Number]:
    """A sweep as metadata, and the nodes that could not be published after it."""
    return {
        **compared_numbers(done.comparison),
        "queued": done.queued,
        "raised": done.raised,
        **_too_large_numbers(too_large),
    }


def relayed_numbers(account: RelayAccount) -> dict[str, Number]:
    """What a relay did as metadata."""
    return {
        "snapshots": account.snapshots,
        "tombstones": account.tombstones,
        "events": account.events,
        "coalesced": account.coalesced,
        "waiting": account.waiting,
        **_too_large_numbers(account.too_large),
        **({"held nodes": shortened(account.held)} if account.held else {}),
    }


def _too_large_numbers(nodes: Sequence[str]) -> dict[str, Number]:
    named: dict[str, Number] = {"too large nodes": shortened(nodes)} if nodes else {}
    return {"too large": len(nodes), **named}
