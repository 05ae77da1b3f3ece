"""One suite for every store: a folder and a real S3 server keep pages in the same way."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import obstore
import pytest

from onex_platform.base.errors import ConfigurationError, InfraConnectionError
from onex_platform.base.settings import Settings
from onex_platform.ingest.archive import PageArchive
from onex_platform.ingest.verification import verify_log
from onex_platform.log.compaction import compact
from onex_platform.log.compaction.compact import sweep
from onex_platform.log.page_format import checksum_of
from onex_platform.log.store import (
    PageDamagedError,
    PageExistsError,
    PageMissingError,
    PageStore,
    concurrently,
)
from onex_platform.log.verify.page_check import verify_pages
from onex_platform.projections.fold.refold import DamagedLogError, folded_to
from onex_platform.projections.history.as_of import count_by_state, fleet_as_of, node_as_of
from onex_platform.projections.history.hourly_states import hour_of, nearest_state, write_hour
from onex_platform.projections.rebuild.proof import live_equals_replay
from onex_platform.projections.rebuild.rebuild import open_rebuild
from onex_platform_tests.support.archives import open_archive
from onex_platform_tests.support.broker import send
from onex_platform_tests.support.events import at
from onex_platform_tests.support.folded_logs import require_live_equals_replay
from onex_platform_tests.support.live_registry import go_on, joining, node
from onex_platform_tests.support.pipeline_runs import a_mixed_morning, drained
from onex_platform_tests.support.written_logs import files_of, let_grace_pass, orphans_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = "registration/2026/03/01/12/page.parquet"


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.servers)])
def pages(request: pytest.FixtureRequest, tmp_path: Path) -> PageStore:
    """An empty store of each kind."""
    if request.param == "folder":
        return PageStore(str(tmp_path / "pages"))
    return PageStore(f"{request.getfixturevalue('s3_url')}/{uuid4()}")


def test_what_is_stored_is_read_and_never_overwritten(pages: PageStore) -> None:
    pages.create(PAGE, b"first")
    with pytest.raises(PageExistsError, match=r"page\.parquet exists"):
        pages.create(PAGE, b"second")
    assert pages.read(PAGE) == b"first"
    assert pages.read_whole(PAGE, checksum_of(b"first")) == b"first"
    with pytest.raises(PageDamagedError, match=PAGE):
        pages.read_whole(PAGE, checksum_of(b"second"))


def test_of_rivals_that_store_the_same_key_one_wins(pages: PageStore) -> None:
    def create(number: int) -> bool:
        try:
            pages.create(PAGE, b"%d" % number)
        except PageExistsError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = [number for number, created in enumerate(pool.map(create, range(16))) if created]
    assert len(won) == 1
    assert pages.read(PAGE) == b"%d" % won[0]


def test_a_reader_fetches_any_part(pages: PageStore) -> None:
    data = os.urandom(300_000)
    pages.create(PAGE, data)
    with pages.open(PAGE) as reader:
        assert reader.seekable()
        reader.seek(-8, os.SEEK_END)
        assert (reader.read(8), reader.read(8)) == (data[-8:], b"")
        reader.seek(1000)
        assert (reader.read(5), reader.tell()) == (data[1000:1005], 1005)
        reader.seek(0)
        assert reader.read() == data


def test_objects_are_listed_below_their_folder_with_size_and_time(pages: PageStore) -> None:
    begun = datetime.now(UTC) - timedelta(seconds=5)
    written = {f"a/{number:04}": bytes(number) for number in range(1, 1200)}
    for _ in concurrently(lambda item: pages.create(*item), [*written.items(), ("b/c", b"!")]):
        pass
    listed = {item.key: item for item in pages.objects("a")}
    assert {key: item.encoded_bytes for key, item in listed.items()} == {
        key: len(data) for key, data in written.items()
    }
    assert all(begun <= item.modified_at <= datetime.now(UTC) for item in listed.values())
    assert len(list(pages.objects())) == len(written) + 1


def test_what_is_deleted_is_gone_and_may_be_deleted_again(pages: PageStore) -> None:
    pages.create(PAGE, b"page")
    pages.delete(PAGE)
    pages.delete(PAGE)
    assert list(pages.objects()) == []
    with pytest.raises(PageMissingError, match=PAGE):
        pages.read(PAGE)
    with pytest.raises(PageMissingError, match=PAGE):
        pages.open(PAGE)
    pages.create(PAGE, b"again")
    assert pages.read(PAGE) == b"again"


def test_a_local_page_is_on_the_disk_before_the_index_can_know_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_ino))
    PageStore(str(tmp_path)).create("a/b/c.parquet", b"page")
    places = (tmp_path / name for name in ("a/b/c.parquet", "a/b", "a", ""))
    assert synced == [place.stat().st_ino for place in places]


def test_an_address_that_no_store_has_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="ftp://nowhere"):
        PageStore("ftp://nowhere")


@pytest.mark.servers
def test_a_remote_page_that_goes_while_it_is_read_is_missing(s3_url: str) -> None:
    pages = PageStore(f"{s3_url}/{uuid4()}")
    pages.create(PAGE, bytes(300_000))
    with pages.open(PAGE) as reader:
        reader.read(10)
        pages.delete(PAGE)
        with pytest.raises(PageMissingError, match=PAGE):
            reader.read()


@pytest.mark.servers
def test_a_store_that_refuses_us_is_named_without_its_secrets(
    s3_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-the-one")
    with pytest.raises(InfraConnectionError, match="Check ONEX_PAGES_URL and the cred") as refusal:
        PageStore(s3_url).read(PAGE)
    assert s3_url in str(refusal.value)
    assert "not-the-one" not in str(refusal.value)


@pytest.fixture
def bucket_settings(pipeline_settings: Settings, s3_url: str) -> Settings:
    """The pipeline with its pages in a bucket."""
    pages = pipeline_settings.pages.model_copy(update={"url": f"{s3_url}/{uuid4()}"})
    return pipeline_settings.model_copy(update={"pages": pages})


def require_attributes(archive: PageArchive) -> None:
    """The store says of every page what the table says of it, but for the groups of its rows."""
    bucket = obstore.store.from_url(archive.log.store.url)
    for page in archive.log.table.pages():
        kept = dict(obstore.get(bucket, page.key).attributes)
        assert (int(kept["encoded_bytes"]), kept["checksum"]) == (page.encoded_bytes, page.checksum)
        told = page.metadata.model_dump(
            mode="json", exclude={"row_groups", "counters", "sequences"}, exclude_none=True
        )
        told |= page.metadata.counters
        assert {name: kept[name] for name in told} == {n: str(value) for n, value in told.items()}


@pytest.mark.servers
def test_the_whole_pipeline_works_on_a_bucket(
    spark: SparkSession, bucket_settings: Settings
) -> None:
    with open_archive(bucket_settings) as archive:
        for _ in range(2):
            count = send(bucket_settings, a_mixed_morning(9))
            assert drained(spark, archive).read == count
        require_live_equals_replay(archive)
        files = files_of(archive)
        assert len(files) > 2
        require_attributes(archive)
        merged = compact.compact(spark, archive.log, folded_to(archive.database, archive.domain))
        assert merged.failures == []
        assert archive.log.table.known(list(files)) == files
        let_grace_pass(archive)
        assert sweep(archive.log).pages == len(files)
        assert len(files_of(archive)) == merged.merged_pages < len(files)
        assert verify_log(archive.log).faults == verify_pages(archive.log).faults == []
        assert (
            orphans_of(archive, folded_to(archive.database, archive.domain), datetime.now(UTC))
            == []
        )
        require_live_equals_replay(archive)
        assert live_equals_replay(spark, archive.log).holds
        with open_rebuild(spark, archive.log) as rebuild:
            assert rebuild.swap().equal == 9
        require_attributes(archive)
        [page] = archive.log.table.pages()
        archive.log.store.delete(page.key)
        with pytest.raises(DamagedLogError, match=page.key):
            live_equals_replay(spark, archive.log)


@pytest.mark.servers
def test_hours_are_kept_in_a_bucket_and_asked_for(
    spark: SparkSession, bucket_settings: Settings
) -> None:
    with open_archive(bucket_settings) as archive:
        go_on(spark, archive, 7200, joining(1, 0, 0) + joining(2, 3700, 10))
        hour = hour_of(at(0))
        written = write_hour(spark, archive.log, hour)
        assert write_hour(spark, archive.log, hour) == written
        assert nearest_state(archive.log, folded_to(archive.database, archive.domain)) == written
        assert count_by_state(fleet_as_of(spark, archive.log, at(7000))).total() == 2
        row = node_as_of(archive.log, at(7000), node(1))
        assert row is not None
        assert row.node_name == "node-1"
        assert node_as_of(archive.log, at(3600), node(2)) is None
