"""The log in the asset graph: its hours, its lag behind the topics, and what keeps it tidy."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
from dagster_pyspark import PySparkResource

from onex_platform import wiring
from onex_platform.base.errors import InfraError
from onex_platform.base.settings import Settings
from onex_platform.context import PlatformContext
from onex_platform.ingest import checks, deduplication
from onex_platform.ingest.archive import PageArchive, registration_log
from onex_platform.ingest.cut_counts import hour_counts
from onex_platform.ingest.cuts.committed_cuts import CommittedCuts
from onex_platform.ingest.inputs import input_ids, next_offsets
from onex_platform.ingest.lag import TopicState, topic_states
from onex_platform.ingest.letters import letter_report
from onex_platform.ingest.letters.handler_letters import (
    count_handler_letters,
    follow_handlers,
    handled_topics,
)
from onex_platform.ingest.letters.letter_summaries import publish_report
from onex_platform.ingest.observing import noted, recalled, worth_recording
from onex_platform.ingest.verification import verify_log
from onex_platform.log.compaction.compact import PAGES_PER_SWEEP, sweep
from onex_platform.log.page_log import PageLog
from onex_platform.log.verify.page_check import verify_pages
from onex_platform.migration.present import platform_now
from onex_platform.topics.catalogue import Catalogue
from onex_platform.topics.policy import load_policy
from onex_platform.topics.signals import Published

# Of every input topic: what is checked, and what it means.
_TOPIC_CHECKS = {
    checks.archive_keeps_up: "The archive is close enough behind, and ahead of the retention.",
    checks.broker_dates_records: "One clock dates the records, so that a cut is one moment.",
}


class SampleOfPages(dg.Config):
    """How many pages a check reads byte by byte; none given: all of them, on Spark."""

    pages: int | None = 20


class StretchOfLog(dg.Config):
    """How much of the log a check looks at, back from its head; none given: the whole log."""

    hours: int | None = 3


class SweepConfig(dg.Config):
    dry_run: bool = False
    most_pages: int = PAGES_PER_SWEEP


def build_definitions(settings: Settings, catalogue: Catalogue, whole: Catalogue) -> dg.Definitions:
    """`whole` has the topics of others as well, whose handlers have dead letters too."""
    sweeping, pruning, counting = sweep_replaced_pages, _pruning(catalogue), _counting_job()
    return dg.Definitions(
        assets=[_event_pages(settings, catalogue), _dead_letters(whole)],
        asset_checks=[
            log_is_whole,
            pages_are_sound,
            _letters_are_looked_after(whole),
            _topic_checks(catalogue),
        ],
        jobs=[sweeping, pruning, counting],
        sensors=[observe_topics],
        schedules=[
            wiring.schedule(sweeping, "40 * * * *"),
            wiring.schedule(pruning, "10 3 * * *"),
            wiring.schedule(counting, "20 * * * *"),
        ],
    )


@dg.resource(required_resource_keys={"platform"})
def log(context: dg.InitResourceContext) -> PageLog:
    """The domain's log, for those who read it or look after its pages."""
    return registration_log(context.resources.platform)


@dg.resource(required_resource_keys={"platform"})
def archive(context: dg.InitResourceContext) -> PageArchive:
    """The domain's log with what fills it, for those who take cuts."""
    return PageArchive.of(context.resources.platform)


def _event_pages(settings: Settings, catalogue: Catalogue) -> dg.AssetsDefinition:
    hours = wiring.hours(settings)

    @dg.asset(
        key=wiring.EVENT_PAGES,
        deps=[wiring.topic_key(contract.topic) for contract in catalogue.registration_inputs()],
        partitions_def=hours,
        backfill_policy=dg.BackfillPolicy.single_run(),
        freshness_policy=wiring.HOURLY,
        pool=wiring.WRITER_POOL,
        group_name=wiring.GROUP,
        owners=wiring.OWNERS,
        kinds={"parquet", "spark"},
    )
    def event_pages(
        context: dg.AssetExecutionContext,
        spark: dg.ResourceParam[PySparkResource],
        archive: dg.ResourceParam[PageArchive],
    ) -> dg.MaterializeResult[None]:
        """The log: every event of the input topics, once, in immutable pages.

        An hour is materialised when everything that was appended before its end is in the log.
        What is there already is not read again.
        """
        window = wiring.hours_of_run(context)
        cuts = archive.close_before(spark.spark_session, window.end)
        for hour, counts in hour_counts(archive.log, window.start, window.end).items():
            context.add_asset_metadata(counts._asdict(), partition_key=wiring.hour_key(hours, hour))
        return dg.MaterializeResult(
            metadata={"cuts of this run": cuts, "head": archive.cuts.head().isoformat()}
        )

    return event_pages


@dg.asset_check(asset=wiring.EVENT_PAGES)
def log_is_whole(config: StretchOfLog, log: dg.ResourceParam[PageLog]) -> dg.AssetCheckResult:
    """No gap and no overlap: every offset was read once, every event is in a page once; of the last
    hours with every run, of the whole log every night."""
    since = None
    if config.hours is not None:
        since = CommittedCuts(log).head() - timedelta(hours=config.hours)
    return dg.AssetCheckResult(**checks.log_is_whole(verify_log(log, since))._asdict())


@dg.asset_check(asset=wiring.EVENT_PAGES)
def pages_are_sound(
    config: SampleOfPages,
    spark: dg.ResourceParam[PySparkResource],
    log: dg.ResourceParam[PageLog],
) -> dg.AssetCheckResult:
    """A sample of the pages, or all, lie in the store with the checksum that they were given."""
    account = verify_pages(log, config.pages, spark.spark_session)
    return dg.AssetCheckResult(**checks.pages_are_sound(account)._asdict())


def _dead_letters(whole: Catalogue) -> dg.AssetsDefinition:
    @dg.asset(
        key=wiring.DEAD_LETTERS,
        deps=[wiring.EVENT_PAGES],
        group_name=wiring.GROUP,
        owners=wiring.OWNERS,
        kinds={"postgres"},
    )
    def dead_letters(
        context: dg.AssetExecutionContext,
        platform: dg.ResourceParam[PlatformContext],
        published: dg.ResourceParam[Published],
    ) -> dg.MaterializeResult[None]:
        """Records that could not enter the log, or that no handler could handle: how many wait, and
        what became of the others.

        They are also published, by context and by topic; a broker that is away fails nobody.
        """
        settings, now, told = platform.settings, datetime.now(UTC), 0
        try:
            if not follow_handlers(platform, handled_topics(settings, whole), now):
                context.log.info("Some of the handlers' letters are left for the next time.")
        except InfraError as error:
            context.log.warning(f"The handlers' letters are those of last time: {error.message}")
        counts = _counts(platform)
        try:
            told = publish_report(settings, published, counts, now)
        except InfraError as error:
            context.log.warning(f"The report is not published: {error.message}")
        numbers = letter_report.letter_numbers(counts)
        return dg.MaterializeResult(metadata={**numbers, "published records": told})

    return dead_letters


def _letters_are_looked_after(whole: Catalogue) -> dg.AssetChecksDefinition:
    @dg.asset_check(asset=wiring.DEAD_LETTERS)
    def letters_are_looked_after(
        platform: dg.ResourceParam[PlatformContext],
    ) -> dg.AssetCheckResult:
        """No dead letter waits longer than its context's team has promised to look at it."""
        found = letter_report.report(_counts(platform), whole, load_policy(), datetime.now(UTC))
        return dg.AssetCheckResult(**letter_report.letters_are_looked_after(found)._asdict())

    return letters_are_looked_after


def _counts(platform: PlatformContext) -> list[letter_report.LetterCounts]:
    with platform.database.transaction() as cursor:
        log_letters = letter_report.count_letters(cursor, platform.domain)
        return log_letters + count_handler_letters(cursor)


def _counting_job() -> Any:
    return dg.define_asset_job(
        "count_dead_letters",
        selection=dg.AssetSelection.assets(wiring.DEAD_LETTERS),
        description="Count the dead letters of log and handlers; see whether one waits too long.",
    )


def _topic_checks(catalogue: Catalogue) -> dg.AssetChecksDefinition:
    @dg.multi_asset_check(
        specs=[
            dg.AssetCheckSpec(
                check.__name__, asset=wiring.topic_key(contract.topic), description=meaning
            )
            for contract in catalogue.registration_inputs()
            for check, meaning in _TOPIC_CHECKS.items()
        ],
        can_subset=True,
    )
    def topics_are_archived(
        context: dg.AssetCheckExecutionContext, platform: dg.ResourceParam[PlatformContext]
    ) -> Iterator[dg.AssetCheckResult]:
        for state in _states(platform):
            key = wiring.topic_key(state.topic)
            for check in _TOPIC_CHECKS:
                name = check.__name__
                if dg.AssetCheckKey(key, name) in context.selected_asset_check_keys:
                    found = check(state)._asdict()
                    yield dg.AssetCheckResult(asset_key=key, check_name=name, **found)

    return topics_are_archived


@dg.sensor(minimum_interval_seconds=30, default_status=dg.DefaultSensorStatus.RUNNING)
def observe_topics(
    context: dg.SensorEvaluationContext, platform: dg.ResourceParam[PlatformContext]
) -> dg.SensorResult:
    """Record each topic's offsets and lag, and the verdict on it, when they have changed."""
    now = datetime.now(UTC)
    memory = recalled(context.cursor)
    news = worth_recording(memory, _states(platform), now)
    return dg.SensorResult(
        skip_reason=f"{len(news)} topics had news." if news else "No topic has news.",
        asset_events=[event for state in news for event in _events(state)],
        cursor=noted(memory, news, now),
    )


def _events(state: TopicState) -> Iterator[dg.AssetObservation | dg.AssetCheckEvaluation]:
    key = wiring.topic_key(state.topic)
    yield dg.AssetObservation(key, metadata=checks.topic_numbers(state))
    if state.lag is not None:
        for check in _TOPIC_CHECKS:
            found = check(state)._asdict()
            yield dg.AssetCheckEvaluation(asset_key=key, check_name=check.__name__, **found)


def _states(platform: PlatformContext) -> list[TopicState]:
    platform = platform_now(platform)
    made_anew = input_ids(platform).made_anew
    cursors, now = next_offsets(platform), datetime.now(UTC)
    return topic_states(platform.settings, platform.catalogue, cursors, now, made_anew)


@dg.op(pool=wiring.MAINTENANCE_POOL)
def sweep_pages(
    context: dg.OpExecutionContext, config: SweepConfig, log: dg.ResourceParam[PageLog]
) -> None:
    """Delete the files of pages that were replaced longer ago than the grace period."""
    swept = sweep(log, config.most_pages, dry_run=config.dry_run)
    context.add_output_metadata(swept._asdict())


@dg.job
def sweep_replaced_pages() -> None:
    """Delete what compaction has replaced, once no reader can need it any more."""
    sweep_pages()


def _pruning(catalogue: Catalogue) -> dg.JobDefinition:
    @dg.op(pool=wiring.MAINTENANCE_POOL)
    def forget_event_ids(
        context: dg.OpExecutionContext, platform: dg.ResourceParam[PlatformContext]
    ) -> None:
        """Forget the ids of events that no input topic can deliver again."""
        stays = [contract.longest_stay for contract in catalogue.registration_inputs()]
        forgotten = deduplication.prune(
            platform.database,
            platform.domain,
            now=datetime.now(UTC),
            keep=timedelta(days=platform.settings.registration.ledger_days),
            largest_retention=max((stay for stay in stays if stay), default=timedelta()),
        )
        context.add_output_metadata({"forgotten ids": forgotten})

    @dg.job
    def prune_ledger() -> None:
        """Keep the ledger of event ids bounded in time."""
        forget_event_ids()

    return prune_ledger
