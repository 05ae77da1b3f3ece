"""Comparing index and store, and putting right what can be put right without a risk.

What holds:
- It reports. It publishes what the index misses only if told to rebuild, and deletes only if told
  to delete.
- What is younger than the grace period is in flight: a page that is about to be indexed, a merged
  one that is about to replace others. It is left alone.
- Deleted are replaced pages only, once their successor has been in the store for the grace period,
  with all its bytes; and what a probe left behind. No other object is ever deleted.
- An entry that may have expired is not missed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise

from onex_platform.base.faults import effect
from onex_platform.capture.captured_events import CapturedEvent, PageEntry
from onex_platform.capture.codecs import read_page
from onex_platform.capture.errors import ObjectMissingError, PageFormatError
from onex_platform.capture.flush.page_json import entry_from_attributes
from onex_platform.capture.read.event_replay import Done
from onex_platform.capture.slots import ObjectHead, ObjectStorage, PageIndex, PageQuery
from onex_platform.capture.storage.objects import PROBES
from onex_platform.log.page_format import checksum_of

_AT_ONCE = 500


@dataclass
class Account:
    """What a comparison found, by key, and what was done about it."""

    objects: int = 0
    pages: int = 0  # that readers can find
    unindexed: list[str] = field(default_factory=list)  # pages that the index misses
    in_flight: list[str] = field(default_factory=list)  # the same, but young
    expired: list[str] = field(default_factory=list)  # the same, but older than entries live
    missing: list[str] = field(default_factory=list)  # entries without an object
    damaged: list[str] = field(default_factory=list)  # objects of another size than their entries
    foreign: list[str] = field(default_factory=list)  # objects that are no pages
    gaps: list[str] = field(default_factory=list)  # sequences in no page, with some behind them
    removable: list[str] = field(default_factory=list)  # replaced pages whose time is over
    rebuilt: int = 0
    deleted: int = 0

    @property
    def faults(self) -> int:
        """What nobody can put right here."""
        return len(self.missing) + len(self.damaged)


def reconcile(
    index: PageIndex,
    storage: ObjectStorage,
    tenants: Iterable[str],
    now: datetime,
    *,
    grace: timedelta,
    ttl: timedelta | None = None,
    rebuild: bool = False,
    delete: bool = False,
) -> Account:
    """Compare everything in the store with the index; tenants that only the store knows are found
    as their pages are met."""
    account = Account()
    known = _Known(index)
    for tenant in tenants:
        known.load(tenant)
    objects: dict[str, ObjectHead] = {}
    lost: list[PageEntry] = []
    on_their_way: list[PageEntry] = []
    leftovers: list[str] = []
    for found in storage.list():
        account.objects += 1
        young = now - found.modified_at < grace
        if found.key.startswith(f"{PROBES}/"):
            if not young:
                leftovers.append(found.key)
            continue
        objects[found.key] = found
        if found.key in known.keys:
            continue
        entry = describe(storage, found.key)
        if entry is None:
            account.foreign.append(found.key)
        elif known.has(entry):
            continue
        elif young:
            account.in_flight.append(found.key)
            on_their_way.append(entry)
        elif ttl is not None and now - found.modified_at >= ttl:
            account.expired.append(found.key)
        else:
            account.unindexed.append(found.key)
            lost.append(entry)
    _compare(account, known, objects)
    account.gaps = list(gaps([*known.visible.values(), *lost, *on_their_way]))
    over = removable(known.replaced.values(), known.visible.values(), objects.get, now - grace)
    account.removable = [entry.key for entry in over] + leftovers
    if rebuild:
        account.rebuilt = _publish(index, lost)
    if delete:
        account.deleted = remove_pages(index, storage, over) + sum(map(storage.delete, leftovers))
    return account


def describe(storage: ObjectStorage, key: str) -> PageEntry | None:
    """A page's entry from what its object says of itself, or else from its own header; none if it
    is no page. A page of a newer release can't be told from something else."""
    try:
        head = storage.head(key)
        entry = entry_from_attributes(key, head.size, head.attributes)
        if entry is not None:
            return entry
        data = storage.get(key)
        return PageEntry(read_page(data).info, key, len(data), checksum_of(data))
    except (ObjectMissingError, PageFormatError):
        return None


class _Known:
    """What the index knows of the tenants that were met."""

    def __init__(self, index: PageIndex) -> None:
        self._index = index
        self._tenants: set[str] = set()
        self.visible: dict[str, PageEntry] = {}  # by id
        self.replaced: dict[str, PageEntry] = {}
        self.keys: set[str] = set()

    def load(self, tenant: str) -> None:
        if tenant in self._tenants:
            return
        self._tenants.add(tenant)
        for entries, place in (
            (self._index.replaced(tenant), self.replaced),
            (self._index.query(PageQuery(tenant)), self.visible),
        ):
            for entry in entries:
                place[entry.info.page_id] = entry
                self.keys.add(entry.key)

    def has(self, entry: PageEntry) -> bool:
        self.load(entry.info.tenant)
        return entry.info.page_id in self.visible or entry.info.page_id in self.replaced


def _compare(account: Account, known: _Known, objects: dict[str, ObjectHead]) -> None:
    account.pages = len(known.visible)
    for entry in known.visible.values():
        found = objects.get(entry.key)
        if found is None:
            account.missing.append(entry.key)
        elif found.size != entry.storage_size_bytes:
            account.damaged.append(entry.key)


def gaps(pages: Iterable[PageEntry], others: Iterable[CapturedEvent] = ()) -> Iterator[str]:
    """Where a writer's sequences are interrupted, in pages and other events together. A page may
    be waiting for its store, or was removed on purpose: so it is no fault by itself."""
    captured: dict[str, Done] = defaultdict(Done)
    for page in pages:
        for span in page.info.writers:
            done = captured[page.info.tenant]
            done.add(span.writer_id, span.first_sequence, span.last_sequence)
    for event in others:
        captured[event.tenant].add(event.writer_id, event.sequence, event.sequence)
    for tenant, done in sorted(captured.items()):
        for writer, ranges in sorted(done.ranges.items()):
            for (_, last), (first, _) in pairwise(ranges):
                yield f"{tenant} {writer!r}: {last + 1} to {first - 1}"


def removable(
    replaced: Iterable[PageEntry],
    visible: Iterable[PageEntry],
    head_of: Callable[[str], ObjectHead | None],
    before: datetime,
) -> list[PageEntry]:
    """Replaced pages of which some successor is sound and has been there long enough for every
    reader. What was replaced first comes first: a page must not outlive all its successors."""
    replaced = list(replaced)
    successors = {
        page_id: entry for entry in (*replaced, *visible) for page_id in entry.info.replaces
    }
    is_sound: dict[str, bool] = {}

    def sound(entry: PageEntry) -> bool:
        if entry.key not in is_sound:
            found = head_of(entry.key)
            is_sound[entry.key] = (
                found is not None
                and found.size == entry.storage_size_bytes
                and found.modified_at < before
            )
        return is_sound[entry.key]

    chosen = []
    for entry in replaced:
        chain = list(_chain(entry, successors))
        if any(map(sound, chain)):
            chosen.append((-len(chain), entry.info.start_time_us, entry.info.page_id, entry))
    return [entry for *_, entry in sorted(chosen)]


def _chain(entry: PageEntry, successors: Mapping[str, PageEntry]) -> Iterator[PageEntry]:
    """The page that took an entry's place, the one that took that one's, and so on."""
    seen: set[str] = set()
    successor = successors.get(entry.info.page_id)
    while successor is not None and successor.info.page_id not in seen:
        yield successor
        seen.add(successor.info.page_id)
        successor = successors.get(successor.info.page_id)


def _publish(index: PageIndex, entries: list[PageEntry]) -> int:
    """Merged pages first: what they replace must not be seen beside them."""
    entries.sort(key=lambda entry: not entry.info.replaces)
    for start in range(0, len(entries), _AT_ONCE):
        with effect("capture.rebuild_index"):
            index.publish(entries[start : start + _AT_ONCE])
    return len(entries)


def remove_pages(index: PageIndex, storage: ObjectStorage, entries: list[PageEntry]) -> int:
    """Objects first: an entry that outlives its object is forgotten by the next run, an object
    that outlives its entry would be taken for a page that the index misses."""
    for entry in entries:
        with effect("capture.remove_page"):
            storage.delete(entry.key)
    for start in range(0, len(entries), _AT_ONCE):
        index.forget([entry.info.page_id for entry in entries[start : start + _AT_ONCE]])
    return len(entries)
