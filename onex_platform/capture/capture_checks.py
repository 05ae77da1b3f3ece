"""What is asked of a capture archive regularly, and what the answers mean."""

from __future__ import annotations

from datetime import datetime, timedelta

from onex_platform.capture.captured_archive import CapturedArchive
from onex_platform.capture.flush.dead_letters import DeadLetters
from onex_platform.capture.flush.retrying import IndexQueue
from onex_platform.capture.read.page_proof import PageProof
from onex_platform.capture.read.reconcile import Account, reconcile
from onex_platform.checks import Verdict

_MOST_NAMED = 20


def compared(archive: CapturedArchive, now: datetime) -> Account:
    """Index and store; nothing is changed."""
    days = archive.config.index.config.ttl_days
    return reconcile(
        archive.index,
        archive.storage,
        archive.tenants,
        now,
        grace=timedelta(seconds=archive.config.compaction.grace_seconds),
        ttl=None if days is None else timedelta(days=days),
    )


def pages_are_whole(proof: PageProof) -> Verdict:
    """Pages hold what the index says, and no writer's sequence is missing."""
    return Verdict(
        passed=not proof.faults,
        description=_named("Every page is whole", proof.faults, "`onex snapshotter verify`"),
        metadata={
            "pages": proof.pages,
            "pages read": proof.read,
            "events in them": proof.events,
            "faults": len(proof.faults),
        },
    )


def index_knows_the_store(account: Account) -> Verdict:
    """Every page of the store is in the index, and every entry has its page."""
    faults = [*account.missing, *account.damaged, *account.unindexed]
    return Verdict(
        passed=not faults,
        description=_named("Index and store agree", faults, "`onex pages reconcile`"),
        metadata={
            "objects": account.objects,
            "pages": account.pages,
            "missing": len(account.missing),
            "damaged": len(account.damaged),
            "not indexed": len(account.unindexed),
            "in flight": len(account.in_flight),
            "foreign": len(account.foreign),
            "removable": len(account.removable),
        },
    )


def nothing_was_given_up(archive: CapturedArchive) -> Verdict:
    """No page is a dead letter; how many wait for the index."""
    folder = archive.config.wal.folder
    if not folder.is_dir():
        return Verdict(True, f"{folder} is not on this machine.", {})
    letters = [
        f"{letter.entry.key}: {letter.error}"
        for letter in DeadLetters(folder / "dead_letters").letters()
    ]
    return Verdict(
        passed=not letters,
        description=_named("There are no dead letters", letters, "`onex pages dlq redrive`"),
        metadata={
            "dead letters": len(letters),
            "waiting for the index": len(IndexQueue(folder / "index_queue")),
        },
    )


def _named(good: str, faults: list[str], way_out: str) -> str:
    if not faults:
        return f"{good}."
    more = f" and {len(faults) - _MOST_NAMED} more" if len(faults) > _MOST_NAMED else ""
    return f"{'; '.join(faults[:_MOST_NAMED])}{more}. See {way_out}."
