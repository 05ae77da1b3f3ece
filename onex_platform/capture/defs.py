"""The capture archive in the asset graph: pages, index and dead letters, and what keeps them tidy.

Only where `ONEX_CAPTURE_CONFIG` names the snapshotter's file. The file is read when a check, a run
or a tick needs it: one that is wrong or not there fails those, and never the graph.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, NamedTuple

import dagster as dg
from dagster_pyspark import PySparkResource

from onex_platform import wiring
from onex_platform.base.errors import ConfigurationError, OnexError
from onex_platform.base.settings import Settings
from onex_platform.capture import capture_checks
from onex_platform.capture.captured_archive import ArchiveAddress, CapturedArchive
from onex_platform.capture.compaction.compacting import (
    GROUPS_PER_RUN,
    PAGES_PER_SWEEP,
    compact,
    plan,
    sweep,
)
from onex_platform.capture.compaction.page_expiry import expire
from onex_platform.capture.config import load_config
from onex_platform.capture.read.page_proof import Waiting, prove_pages
from onex_platform.engines.postgres.database import Database, open_database

CAPTURED_PAGES = dg.AssetKey("captured_pages")
CAPTURE_INDEX = dg.AssetKey("capture_index")
CAPTURE_DEAD_LETTERS = dg.AssetKey("capture_dead_letters")
_GROUP = "capture"
_JOB = "compact_captured_pages"


class SampleOfCapturedPages(dg.Config):
    """How many pages a check reads byte by byte; none given: all of them."""

    pages: int | None = 20


class CapturedCompaction(dg.Config):
    """A run is capped in groups of pages; a dry run only says what is worth merging."""

    dry_run: bool = False
    most_groups: int = GROUPS_PER_RUN


class _Leases(NamedTuple):
    """Where the lease of a run is found."""

    settings: Settings
    database: Database


class CapturedSweep(dg.Config):
    dry_run: bool = False
    most_pages: int = PAGES_PER_SWEEP


def build_definitions(settings: Settings) -> dg.Definitions:
    if settings.capture.config is None:
        return dg.Definitions()
    proving = _proof_job()
    return dg.Definitions(
        assets=_assets(),
        asset_checks=[captured_pages_are_whole, index_knows_the_store, nothing_was_given_up],
        jobs=[compact_captured_pages, sweep_captured_pages, proving],
        sensors=[compact_when_captured_pages_pile_up, observe_capture],
        schedules=[
            wiring.schedule(sweep_captured_pages, "20 * * * *"),
            wiring.schedule(proving, "30 3 * * *"),
        ],
    )


def _assets() -> list[dg.AssetSpec]:
    about = {
        CAPTURED_PAGES: ({"parquet", "protobuf"}, "Pages of captured events in the object store."),
        CAPTURE_INDEX: (set(), "Where captured pages are found."),
        CAPTURE_DEAD_LETTERS: (set(), "Pages that the store would not take."),
    }
    return [
        dg.AssetSpec(
            key=key,
            deps=[] if key == CAPTURED_PAGES else [CAPTURED_PAGES],
            group_name=_GROUP,
            owners=wiring.OWNERS,
            kinds=kinds,
            description=f"{text} The snapshotter writes them; see docs/snapshotter.md.",
        )
        for key, (kinds, text) in about.items()
    ]


@contextmanager
def _archive(settings: Settings) -> Iterator[CapturedArchive]:
    if settings.capture.config is None:
        raise ConfigurationError(
            "No capture archive is configured.", hint="Set ONEX_CAPTURE_CONFIG to its file."
        )
    with ArchiveAddress(load_config(settings.capture.config), settings).open() as archive:
        yield archive


@dg.asset_check(asset=CAPTURED_PAGES)
def captured_pages_are_whole(
    config: SampleOfCapturedPages, settings: dg.ResourceParam[Settings]
) -> dg.AssetCheckResult:
    """A sample of the pages, or all, hold what the index says; no writer's sequence is missing."""
    with _archive(settings) as archive:
        waiting = Waiting(archive.config.wal.folder)
        proof = prove_pages(
            archive.index, archive.storage, archive.tenants, waiting, sample=config.pages
        )
    return dg.AssetCheckResult(**capture_checks.pages_are_whole(proof)._asdict())


@dg.asset_check(asset=CAPTURE_INDEX)
def index_knows_the_store(settings: dg.ResourceParam[Settings]) -> dg.AssetCheckResult:
    """Every page of the store is in the index, and every entry has its page."""
    with _archive(settings) as archive:
        account = capture_checks.compared(archive, datetime.now(UTC))
    return dg.AssetCheckResult(**capture_checks.index_knows_the_store(account)._asdict())


@dg.asset_check(asset=CAPTURE_DEAD_LETTERS)
def nothing_was_given_up(settings: dg.ResourceParam[Settings]) -> dg.AssetCheckResult:
    """No page waits for an operator."""
    with _archive(settings) as archive:
        return dg.AssetCheckResult(**capture_checks.nothing_was_given_up(archive)._asdict())


def _proof_job() -> Any:
    return dg.define_asset_job(
        "prove_capture",
        selection=dg.AssetSelection.checks_for_assets(
            CAPTURED_PAGES, CAPTURE_INDEX, CAPTURE_DEAD_LETTERS
        ),
        config={"ops": {"captured_pages_captured_pages_are_whole": {"config": {"pages": None}}}},
        description="Read every captured page, compare index and store, look for dead letters.",
    )


@dg.op(pool=wiring.MAINTENANCE_POOL)
def merge_captured_pages(
    context: dg.OpExecutionContext,
    config: CapturedCompaction,
    spark: dg.ResourceParam[PySparkResource],
    settings: dg.ResourceParam[Settings],
) -> None:
    """Merge small captured pages, group by group."""
    with _archive(settings) as archive:
        if config.dry_run:
            groups = plan(archive, datetime.now(UTC), config.most_groups)
            pages = sum(len(group.pages) for group in groups)
            context.add_output_metadata({"groups": len(groups), "pages": pages})
            return
        account = compact(spark.spark_session, archive, config.most_groups)
    context.add_output_metadata(asdict(account))
    context.log_event(dg.AssetObservation(CAPTURED_PAGES, metadata=asdict(account)))
    if account.failures:
        raise dg.Failure(" ".join(account.failures), metadata=asdict(account))


@dg.job(name=_JOB)
def compact_captured_pages() -> None:
    """Merge small captured pages to the target size; events and sequences stay."""
    merge_captured_pages()


@dg.op(pool=wiring.MAINTENANCE_POOL)
def sweep_replaced_captures(
    context: dg.OpExecutionContext, config: CapturedSweep, settings: dg.ResourceParam[Settings]
) -> None:
    """Delete captured pages that were replaced longer ago than the grace period."""
    with _archive(settings) as archive:
        swept = sweep(archive, datetime.now(UTC), config.most_pages, dry_run=config.dry_run)
    context.add_output_metadata(swept._asdict())


@dg.op(pool=wiring.MAINTENANCE_POOL)
def expire_captures(
    context: dg.OpExecutionContext, config: CapturedSweep, settings: dg.ResourceParam[Settings]
) -> None:
    """Delete captured pages that are older than `retention.days`, where that is set."""
    with _archive(settings) as archive:
        gone = expire(archive, datetime.now(UTC), config.most_pages, dry_run=config.dry_run)
    context.add_output_metadata(gone._asdict())


@dg.job
def sweep_captured_pages() -> None:
    """Delete what compaction has replaced, once no reader can need it any more, and what is older
    than it has to be kept."""
    sweep_replaced_captures()
    expire_captures()


@dg.sensor(
    job=compact_captured_pages,
    minimum_interval_seconds=300,
    default_status=dg.DefaultSensorStatus.RUNNING,
)
def compact_when_captured_pages_pile_up(
    context: dg.SensorEvaluationContext, settings: dg.ResourceParam[Settings]
) -> dg.RunRequest | dg.SkipReason:
    """Start one compaction when there are enough small pages to be worth it."""
    try:
        with open_database(settings) as database:
            registry = _Leases(settings, database)
            if reason := wiring.reason_to_wait(context.instance, registry, _JOB):
                return dg.SkipReason(reason)
        with _archive(settings) as archive:
            enough, count = archive.config.compaction.start_at_pages, archive.index.count()
            if count < enough:
                return dg.SkipReason(f"There are {count} pages; {enough} start a run.")
            groups = plan(archive, datetime.now(UTC), GROUPS_PER_RUN)
    except OnexError as error:
        return dg.SkipReason(f"The capture archive can't be looked at: {error}")
    pages = sum(len(group.pages) for group in groups)
    if pages < enough:
        return dg.SkipReason(f"{pages} pages are worth merging; {enough} start a run.")
    return dg.RunRequest()


@dg.sensor(minimum_interval_seconds=60, default_status=dg.DefaultSensorStatus.RUNNING)
def observe_capture(
    context: dg.SensorEvaluationContext, settings: dg.ResourceParam[Settings]
) -> dg.SensorResult | dg.SkipReason:
    """Record how many pages readers find and how many were given up, when that has changed."""
    try:
        with _archive(settings) as archive:
            found = {"pages": archive.index.count()}
            letters = capture_checks.nothing_was_given_up(archive)
    except OnexError as error:
        return dg.SkipReason(f"The capture archive can't be looked at: {error}")
    news = f"{found} {letters.metadata}"
    if news == context.cursor:
        return dg.SkipReason("Nothing has changed.")
    return dg.SensorResult(
        asset_events=[
            dg.AssetObservation(CAPTURE_INDEX, metadata=found),
            dg.AssetObservation(CAPTURE_DEAD_LETTERS, metadata=letters.metadata),
            dg.AssetCheckEvaluation(
                asset_key=CAPTURE_DEAD_LETTERS,
                check_name=nothing_was_given_up.check_key.name,
                **letters._asdict(),
            ),
        ],
        cursor=news,
    )
