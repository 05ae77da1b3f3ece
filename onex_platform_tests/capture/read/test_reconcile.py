"""A comparison tells what is wrong, and repairs only what is safe to repair."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from onex_platform.base import faults
from onex_platform.capture.captured_events import PageEntry
from onex_platform.capture.config import StorageConfig
from onex_platform.capture.flush.page_json import info_to_attributes
from onex_platform.capture.index.memory import MemoryIndex
from onex_platform.capture.read.reconcile import Account, reconcile
from onex_platform.capture.slots import ObjectStorage, PageQuery
from onex_platform.capture.storage import open_storage
from onex_platform.log.page_format import checksum_of
from onex_platform.stack.ports import LOOPBACK
from onex_platform_tests.support.captured_pages import TENANT, entry_of, event, events_of, page_of

GRACE = timedelta(hours=1)


@pytest.fixture(params=["filesystem", pytest.param("s3", marks=pytest.mark.servers)])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ObjectStorage]:
    """An empty store: one that keeps no metadata with its objects, and one that does."""
    if request.param == "filesystem":
        options = {"base_path": str(tmp_path)}
    else:
        request.getfixturevalue("s3_url")
        options = {
            "bucket": f"pages/{uuid4()}",
            "endpoint": f"http://{LOOPBACK}:{request.getfixturevalue('s3_port')}",
        }
    config = StorageConfig.model_validate({"backend": request.param, "config": options})
    yield open_storage(config)


@pytest.fixture
def index() -> MemoryIndex:
    return MemoryIndex()


def store(storage: ObjectStorage, *numbers: int, replaces: tuple[PageEntry, ...] = ()) -> PageEntry:
    page = page_of(
        events_of("a", numbers), replaces=[replaced.info.page_id for replaced in replaces]
    )
    entry = entry_of(page)
    attributes = info_to_attributes(page.info, checksum_of(page.data))
    storage.put(entry.key, page.data, content_type="application/protobuf", attributes=attributes)
    return entry


def compared(
    index: MemoryIndex, storage: ObjectStorage, *, hours_later: float = 0, **options: object
) -> Account:
    now = datetime.now(UTC) + timedelta(hours=hours_later)
    return reconcile(index, storage, [TENANT], now, grace=GRACE, **options)  # type: ignore[arg-type]


def test_what_agrees_is_left_alone(index: MemoryIndex, storage: ObjectStorage) -> None:
    index.publish([store(storage, 1), store(storage, 2)])
    assert compared(index, storage, rebuild=True, delete=True) == Account(objects=2, pages=2)


def test_a_tenant_is_found_by_his_pages(index: MemoryIndex, storage: ObjectStorage) -> None:
    index.publish([store(storage, 1), store(storage, 2)])
    account = reconcile(index, storage, [], datetime.now(UTC), grace=GRACE)
    assert account == Account(objects=2, pages=2)


def test_a_page_that_the_index_misses_is_published_again(
    index: MemoryIndex, storage: ObjectStorage
) -> None:
    entry = store(storage, 1, 2)
    assert compared(index, storage, hours_later=2).unindexed == [entry.key]
    assert index.count() == 0, "a report changes nothing"
    assert compared(index, storage, hours_later=2, rebuild=True).rebuilt == 1
    assert list(index.query(PageQuery(TENANT))) == [entry]


def test_a_page_with_more_writers_than_an_object_can_name_is_published_again(
    index: MemoryIndex, storage: ObjectStorage
) -> None:
    page = page_of([event(f"writer-{number:04}", 1) for number in range(300)])
    entry = entry_of(page)
    attributes = info_to_attributes(page.info, entry.checksum)
    storage.put(entry.key, page.data, content_type="application/protobuf", attributes=attributes)
    compared(index, storage, hours_later=2, rebuild=True)
    assert list(index.query(PageQuery(TENANT))) == [entry]


def test_a_young_page_is_on_its_way(index: MemoryIndex, storage: ObjectStorage) -> None:
    entry = store(storage, 1)
    account = compared(index, storage, rebuild=True, delete=True)
    assert account.in_flight == [entry.key]
    assert account.rebuilt == 0


def test_an_entry_that_may_have_expired_is_not_missed(
    index: MemoryIndex, storage: ObjectStorage
) -> None:
    entry = store(storage, 1)
    account = compared(index, storage, hours_later=25, ttl=timedelta(days=1), rebuild=True)
    assert account.expired == [entry.key]
    assert account.rebuilt == 0


def test_an_entry_without_its_object_is_a_fault(index: MemoryIndex, storage: ObjectStorage) -> None:
    kept, gone = store(storage, 1), store(storage, 2)
    index.publish([kept, gone])
    storage.delete(gone.key)
    account = compared(index, storage, rebuild=True, delete=True)
    assert account.missing == [gone.key]
    assert account.faults == 1
    assert index.count() == 2, "what a fault is about stays"


def test_a_gap_in_a_writers_sequences_is_told(index: MemoryIndex, storage: ObjectStorage) -> None:
    index.publish([store(storage, 1, 2), store(storage, 5), store(storage, 5, 6)])
    assert compared(index, storage).gaps == [f"{TENANT} 'a': 3 to 4"]
    store(storage, 3, 4)  # not indexed yet
    assert compared(index, storage).gaps == []


def test_an_object_of_another_size_is_a_fault(index: MemoryIndex, storage: ObjectStorage) -> None:
    entry = store(storage, 1)
    index.publish([entry])
    storage.delete(entry.key)
    storage.put(entry.key, b"short", content_type="x/y", attributes={})
    assert compared(index, storage).damaged == [entry.key]


def test_replaced_pages_go_when_the_grace_has_passed(
    index: MemoryIndex, storage: ObjectStorage
) -> None:
    old = store(storage, 1), store(storage, 2)
    index.publish(old)
    merged = store(storage, 1, 2, replaces=old)
    index.replace(merged)
    assert compared(index, storage, hours_later=0.9, delete=True).deleted == 0
    assert sorted(compared(index, storage, hours_later=1.1).removable) == sorted(
        entry.key for entry in old
    )
    assert compared(index, storage, hours_later=1.1, delete=True).deleted == 2
    assert [found.key for found in storage.list()] == [merged.key]
    assert list(index.replaced(TENANT)) == []
    assert list(index.query(PageQuery(TENANT))) == [merged]


def test_replaced_pages_stay_while_their_successor_is_lost_or_damaged(
    index: MemoryIndex, storage: ObjectStorage
) -> None:
    old = store(storage, 1)
    index.publish([old])
    merged = store(storage, 1, 2, replaces=(old,))
    index.replace(merged)
    storage.delete(merged.key)
    assert compared(index, storage, hours_later=5, delete=True).deleted == 0
    storage.put(merged.key, b"short", content_type="x/y", attributes={})
    assert compared(index, storage, hours_later=5, delete=True).deleted == 0


def test_a_rebuilt_index_hides_what_was_replaced(
    index: MemoryIndex, storage: ObjectStorage
) -> None:
    old = store(storage, 1)
    merged = store(storage, 1, 2, replaces=(old,))
    compared(index, storage, hours_later=2, rebuild=True)
    assert list(index.query(PageQuery(TENANT))) == [merged]
    assert list(index.replaced(TENANT)) == [old]


def test_what_is_no_page_is_never_touched(index: MemoryIndex, storage: ObjectStorage) -> None:
    storage.put("somebody/else's", b"property", content_type="text/plain", attributes={})
    account = compared(index, storage, hours_later=1000, rebuild=True, delete=True)
    assert account.foreign == ["somebody/else's"]
    assert storage.get("somebody/else's") == b"property"


def test_what_a_killed_probe_left_goes(index: MemoryIndex, storage: ObjectStorage) -> None:
    storage.put("_probes/1", b"first", content_type="text/plain", attributes={})
    assert compared(index, storage, delete=True).deleted == 0
    assert compared(index, storage, hours_later=2, delete=True).deleted == 1
    assert list(storage.list()) == []


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("point", ["capture.rebuild_index", "capture.remove_page"])
def test_a_repair_that_was_interrupted_is_finished_by_the_next(
    moment: str, point: str, index: MemoryIndex, storage: ObjectStorage
) -> None:
    old = store(storage, 1), store(storage, 2)
    index.publish(old)
    merged = store(storage, 1, 2, replaces=old)
    index.replace(merged)
    missed = store(storage, 3)

    def accident() -> None:
        raise InterruptedError(point)

    faults.arm(f"{moment}:{point}", accident)
    with pytest.raises(InterruptedError):
        compared(index, storage, hours_later=2, rebuild=True, delete=True)
    compared(index, storage, hours_later=2, rebuild=True, delete=True)
    kept = [merged, missed]
    assert sorted(found.key for found in storage.list()) == sorted(entry.key for entry in kept)
    assert sorted(index.query(PageQuery(TENANT)), key=lambda e: e.key) == sorted(
        kept, key=lambda entry: entry.key
    )
    assert list(index.replaced(TENANT)) == []
    assert compared(index, storage, hours_later=2).faults == 0
