"""The pipeline in the asset graph: runs that drain, close an hour and compact; sensors for them."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import dagster as dg
from dagster_pyspark import PySparkResource

from onex_platform import wiring
from onex_platform.base.errors import interruption_behind
from onex_platform.base.settings import Settings
from onex_platform.checks import Verdict
from onex_platform.context import PlatformContext
from onex_platform.deadlines.checks import (
    CLOCK_AHEAD,
    clock_ahead_seconds,
    no_overdue_without_fact,
)
from onex_platform.domain.states import EnumOutcome
from onex_platform.engines.postgres.leases import Presence
from onex_platform.ingest.archive import PageArchive
from onex_platform.ingest.cut_counts import hours_closed
from onex_platform.ingest.cuts.settling import settling
from onex_platform.log.compaction.compact import GROUPS_PER_RUN, compact, plan
from onex_platform.log.page_log import PageLog
from onex_platform.pipeline import run_start
from onex_platform.pipeline.loop import DrainAccount
from onex_platform.pipeline.proof_times import note_proof
from onex_platform.pipeline.service import ServiceAccount, work
from onex_platform.projections import checks
from onex_platform.projections.rebuild import proof
from onex_platform.projections.reconciliation import look, settle
from onex_platform.snapshots.checks import relayed_numbers
from onex_platform.topics.signals import Published

_PROGRESS_SECONDS = 15
_SAMPLED_ROWS = 200


class CompactionConfig(dg.Config):
    """A run is capped in groups of pages; a dry run only says what is worth merging."""

    dry_run: bool = False
    most_groups: int = GROUPS_PER_RUN


def build_definitions(settings: Settings) -> dg.Definitions:
    draining, closing, proving = _drain_job(settings), _hourly_job(), _proof_job()
    return dg.Definitions(
        jobs=[draining, closing, proving, compact_pages],
        sensors=[_drain_when_behind(draining), compact_when_small_pages_pile_up, end_dead_runs],
        schedules=[
            dg.build_schedule_from_partitioned_job(
                closing, minute_of_hour=5, default_status=dg.DefaultScheduleStatus.RUNNING
            ),
            wiring.schedule(proving, "0 2 * * *"),
        ],
    )


def _drain_job(settings: Settings) -> dg.JobDefinition:
    # It stands by for one run's time and works for two at most; one that takes longer hangs.
    limit = int(6 * settings.pipeline.run_seconds)

    @dg.job(
        name=wiring.DRAINING_JOB,
        # The sensor starts the next one; a retry of Dagster's would be one too many.
        tags={"dagster/max_runtime": str(limit), "dagster/max_retries": "0"},
    )
    def drain_registration() -> None:
        """Stand by until the lease is free, drain what waits, publish it, watch the clock, linger
        for more, hand over, and check the rows."""
        check_rows(drain_input())

    return drain_registration


@dg.op(out=dg.Out(dg.Nothing))
def drain_input(
    context: dg.OpExecutionContext,
    presence: dg.ResourceParam[Presence],
    spark: dg.ResourceParam[PySparkResource],
    archive: dg.ResourceParam[PageArchive],
    published: dg.ResourceParam[Published],
) -> None:
    """Take, fold and publish cuts until nothing is left, then for the linger time."""
    before = archive.cuts.head()
    with _recorded_as_cancelled(context):
        account = work(
            spark.spark_session,
            archive,
            presence.keeper,
            published=published,
            run_id=context.run_id,
            on_lease=lambda: context.log.info("The lease is ours."),
            on_progress=_reporter(context.log.info),
        )
    after = archive.cuts.head()
    for failure in account.failures:
        context.log.warning(f"The run went on without: {failure}")
    numbers = {**_numbers(account.drained), **_timeouts(account), "head": after.isoformat()}
    settled = settling(archive.settings)
    numbers |= {"settling seconds": round(settled.seconds, 3), "settling reason": settled.reason}
    if (ahead := clock_ahead_seconds(archive.settings)) is not None:
        numbers[CLOCK_AHEAD] = ahead
    context.log_event(dg.AssetMaterialization(wiring.REGISTRATION_PROJECTIONS, metadata=numbers))
    if account.published.published or account.published.too_large:
        metadata = relayed_numbers(account.published)
        context.log_event(dg.AssetMaterialization(wiring.REGISTRATION_SNAPSHOTS, metadata=metadata))
    # An hour is materialised once it is over; what the run added to the present one is observed.
    context.log_event(dg.AssetObservation(wiring.EVENT_PAGES, metadata=numbers))
    hours = wiring.hours(archive.settings)
    for hour, counts in hours_closed(archive.log, before, after).items():
        context.log_event(
            dg.AssetMaterialization(
                wiring.EVENT_PAGES,
                partition=wiring.hour_key(hours, hour),
                metadata=counts._asdict(),
            )
        )


@contextmanager
def _recorded_as_cancelled(context: dg.OpExecutionContext) -> Iterator[None]:
    """Whoever is told to end was not asked through Dagster, which would take it for a failure."""
    try:
        yield
    except BaseException as error:
        if (told_to_end := interruption_behind(error)) is None:
            raise
        context.instance.report_run_canceling(context.run, "Told to end; the lease is given back.")
        raise told_to_end from None


@dg.op(ins={"drained": dg.In(dg.Nothing)}, out=dg.Out(dg.Nothing))
def check_rows(
    spark: dg.ResourceParam[PySparkResource],
    platform: dg.ResourceParam[PlatformContext],
    log: dg.ResourceParam[PageLog],
) -> Iterator[dg.AssetCheckEvaluation]:
    """The checks that ride with every run; one that blocks and fails, fails the run."""
    found = look(log)
    settle(log, found)
    accounts = checks.accounting(found)
    note_proof(platform, "accounting", accounts)
    yield _evaluation("accounting", accounts, blocking=True)
    now = datetime.now(UTC)
    yield _evaluation("fold_keeps_up", checks.fold_keeps_up(platform, now))
    yield _evaluation("nobody_is_set_aside", checks.nobody_is_set_aside(platform, now))
    overdue = no_overdue_without_fact(platform, now)
    warns = dg.AssetCheckSeverity.WARN if overdue.is_warning else dg.AssetCheckSeverity.ERROR
    yield _evaluation("no_overdue_without_fact", overdue.verdict, severity=warns)
    sample = proof.live_equals_replay(spark.spark_session, log, _SAMPLED_ROWS)
    compared = checks.live_equals_replay(sample)
    note_proof(platform, "live_equals_replay", compared)
    yield _evaluation("live_equals_replay", compared, blocking=not sample.is_contained)


def _evaluation(name: str, verdict: Verdict, **how: Any) -> dg.AssetCheckEvaluation:
    return dg.AssetCheckEvaluation(
        asset_key=wiring.REGISTRATION_PROJECTIONS, check_name=name, **verdict._asdict(), **how
    )


def _reporter(say: Callable[[str], None]) -> Callable[[DrainAccount], None]:
    """Tells how far a run is, every now and then: each line stays in Dagster's history."""
    told = 0.0

    def report(account: DrainAccount) -> None:
        nonlocal told
        if time.monotonic() - told > _PROGRESS_SECONDS:
            told = time.monotonic()
            say(f"{account.read} records in {account.cuts} cuts, {account.rows} rows written.")

    return report


def _numbers(account: DrainAccount) -> dict[str, Any]:
    return {
        "caught up": account.caught_up,
        "cuts": account.cuts,
        "read": account.read,
        "archived": account.archived,
        "echoes": account.echoes,
        "parked before the log": account.parked,
        "batches": account.batches,
        "facts": account.facts,
        "rows": account.rows,
        **{outcome.value: account.outcomes[outcome] for outcome in EnumOutcome},
        **{f"{step} seconds": round(spent, 3) for step, spent in account.seconds.items()},
    }


def _timeouts(account: ServiceAccount) -> dict[str, Any]:
    return {
        "acks timed out": account.ack_timed_out,
        "nodes expired": account.expired,
        "expiries held": account.held,
    }


def _drain_when_behind(job: dg.JobDefinition) -> dg.SensorDefinition:
    @dg.sensor(
        job=job,
        name="drain_when_behind",
        minimum_interval_seconds=5,
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def drain_when_behind(
        context: dg.SensorEvaluationContext, platform: dg.ResourceParam[PlatformContext]
    ) -> dg.RunRequest | dg.SkipReason:
        """Start a run when something waits and nobody drains, or when a successor is wanted."""
        runs = wiring.runs_in_flight(context.instance, platform, job.name)
        wanted = run_start.judge(platform, [run.run_id for run in runs])
        if not wanted.start:
            return dg.SkipReason(wanted.reason)
        if reason := wiring.pause_after_failures(context.instance, job.name):
            return dg.SkipReason(reason)
        context.log.info(wanted.reason)
        # Without a key: Dagster would refuse a second run with the same one for ever.
        return dg.RunRequest()

    return drain_when_behind


@dg.sensor(minimum_interval_seconds=10, default_status=dg.DefaultSensorStatus.RUNNING)
def end_dead_runs(
    context: dg.SensorEvaluationContext, platform: dg.ResourceParam[PlatformContext]
) -> dg.SkipReason:
    """Report runs as failed whose process died without a word, so that nobody waits for them."""
    dead = wiring.end_dead_runs(context.instance, platform)
    return dg.SkipReason(f"Dead: {', '.join(dead)}." if dead else "Every run lives.")


def _hourly_job() -> Any:
    return dg.define_asset_job(
        "close_hour",
        selection=dg.AssetSelection.assets(
            wiring.EVENT_PAGES, wiring.REGISTRATION_PROJECTIONS, wiring.REGISTRATION_HISTORY
        ),
        description="Archive and fold the rest of an hour, and keep the state at its end.",
    )


def _proof_job() -> Any:
    """Every check of log and rows; those that take a sample otherwise, take everything."""
    whole = {
        "event_pages_log_is_whole": {"config": {"hours": None}},
        "event_pages_pages_are_sound": {"config": {"pages": None}},
        "registration_projections_accounting": {"config": {"whole": True}},
        "registration_projections_live_equals_replay": {"config": {"rows": None}},
    }
    return dg.define_asset_job(
        "prove_registration",
        selection=dg.AssetSelection.checks_for_assets(
            wiring.EVENT_PAGES, wiring.REGISTRATION_PROJECTIONS
        ),
        config={"ops": whole},
        description="Read every page, fold the whole log again, compare every row with it.",
    )


@dg.op(pool=wiring.MAINTENANCE_POOL)
def merge_pages(
    context: dg.OpExecutionContext,
    config: CompactionConfig,
    spark: dg.ResourceParam[PySparkResource],
    log: dg.ResourceParam[PageLog],
) -> None:
    """Merge small pages that are folded and accounted for, group by group."""
    accounts = look(log)
    if config.dry_run:
        groups = plan(log, accounts.right_to, config.most_groups)
        pages = sum(len(group.pages) for group in groups)
        context.add_output_metadata({"groups": len(groups), "pages": pages})
        return
    below = settle(log, accounts)
    account = compact(spark.spark_session, log, below, config.most_groups)
    context.add_output_metadata(asdict(account))
    if account.failures:
        raise dg.Failure(" ".join(account.failures), metadata=asdict(account))


@dg.job
def compact_pages() -> None:
    """Merge pages under the threshold to the target size; events, buckets and positions stay."""
    merge_pages()


@dg.sensor(
    job=compact_pages,
    minimum_interval_seconds=60,
    default_status=dg.DefaultSensorStatus.RUNNING,
)
def compact_when_small_pages_pile_up(
    context: dg.SensorEvaluationContext,
    platform: dg.ResourceParam[PlatformContext],
    log: dg.ResourceParam[PageLog],
) -> dg.RunRequest | dg.SkipReason:
    """Start one compaction when there are enough small pages to be worth it."""
    if reason := wiring.reason_to_wait(context.instance, platform, compact_pages.name):
        return dg.SkipReason(reason)
    if platform.settings.pipeline.warm_runs and wiring.drainer(platform) is None:
        return dg.SkipReason("Nobody drains yet; merging pages would only delay it.")
    groups = plan(log, look(log).right_to, GROUPS_PER_RUN)
    pages, enough = sum(len(group.pages) for group in groups), platform.settings.pages.compact_when
    if pages < enough:
        return dg.SkipReason(f"{pages} pages are worth merging; {enough} start a run.")
    return dg.RunRequest()
