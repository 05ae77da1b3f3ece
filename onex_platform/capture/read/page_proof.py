"""The proof that captured pages are whole: what they hold, what the index says of them, and that no
writer's sequence is missing.

Pages are read byte by byte; `reconcile` only compares sizes. What waits on its way into a page
(in the write-ahead log, the queue of the index, the dead letters) is not missing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from onex_platform.base.errors import OnexError
from onex_platform.capture.captured_events import CapturedEvent, PageEntry, ranges_of
from onex_platform.capture.codecs import read_page
from onex_platform.capture.errors import ObjectMissingError, PageFormatError
from onex_platform.capture.flush.dead_letters import DeadLetters
from onex_platform.capture.flush.retrying import IndexQueue
from onex_platform.capture.read.reconcile import gaps
from onex_platform.capture.recovering import unflushed_events
from onex_platform.capture.slots import ObjectStorage, PageIndex, PageQuery
from onex_platform.log.page_format import checksum_of


@dataclass
class PageProof:
    """What was read and found."""

    pages: int = 0
    read: int = 0
    events: int = 0
    faults: list[str] = field(default_factory=list)


class Waiting:
    """What a snapshotter's folder holds that is in no page, or in none that the index knows."""

    def __init__(self, folder: Path) -> None:
        self.events: list[CapturedEvent] = []
        self.pages: list[PageEntry] = []
        if folder.is_dir():  # not on every machine that proves pages
            self.events = unflushed_events(folder)
            letters = DeadLetters(folder / "dead_letters").letters()
            self.pages = [letter.entry for letter in letters]
            self.pages += IndexQueue(folder / "index_queue").entries()


def prove_pages(
    index: PageIndex,
    storage: ObjectStorage,
    tenants: Iterable[str],
    waiting: Waiting | None = None,
    *,
    sample: int | None = None,
    seed: int | None = None,
) -> PageProof:
    """Read all pages of the tenants, or so many of them by chance, and follow every writer's
    sequences. `storage` may be a replica of the store that the index was made for."""
    entries = [entry for tenant in tenants for entry in index.query(PageQuery(tenant))]
    chosen = entries
    if sample is not None and sample < len(entries):
        chosen = Random(seed).sample(entries, sample)  # noqa: S311 - no secret
    proof = PageProof(pages=len(entries), read=len(chosen))
    for entry in chosen:
        proof.events += entry.info.event_count
        if fault := _fault(storage, entry):
            proof.faults.append(f"{entry.key}: {fault}")
    known = [*entries, *(waiting.pages if waiting else ())]
    missing = gaps(known, waiting.events if waiting else ())
    proof.faults += [f"sequences in no page: {gap}" for gap in missing]
    return proof


def _fault(storage: ObjectStorage, entry: PageEntry) -> str | None:
    """What is wrong with a page, if something is."""
    try:
        data = storage.get(entry.key)
        if len(data) != entry.storage_size_bytes:
            return f"it has {len(data)} bytes; the index says {entry.storage_size_bytes}"
        if checksum_of(data) != entry.checksum:
            return f"its checksum is not {entry.checksum}, as the index says"
        page = read_page(data)
    except ObjectMissingError:
        return "it is missing"
    except PageFormatError as error:
        return str(error)
    except OnexError as error:
        return f"it can't be read: {error}"
    if page.info != entry.info:
        return "the index says something else of it than its own header"
    order = [(event.writer_id, event.sequence, event.event_id) for event in page.events]
    if order != sorted(order):
        return "its events are not sorted by writer and sequence"
    if ranges_of(page.events) != entry.info.writers:
        return "it does not hold the sequences and times that the index says"
    numbers = {(event.writer_id, event.sequence) for event in page.events}
    spans = entry.info.writers
    if len(numbers) != sum(span.last_sequence - span.first_sequence + 1 for span in spans):
        return "sequences are missing in it"
    return None
