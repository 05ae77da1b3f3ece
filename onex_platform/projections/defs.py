"""The rows in the asset graph: the fold, their history, the checks that ride along, the rebuild."""

from datetime import UTC, datetime

import dagster as dg
from dagster_pyspark import PySparkResource

from onex_platform import wiring
from onex_platform.base.settings import Settings
from onex_platform.context import PlatformContext
from onex_platform.domain.order import moment_of
from onex_platform.domain.states import EnumOutcome
from onex_platform.log.page_log import PageLog
from onex_platform.projections import checks
from onex_platform.projections.fold.reducer import FoldedBatch, fold_to, policy_of
from onex_platform.projections.fold.refold import Scope
from onex_platform.projections.history.hourly_states import HOUR, write_hour
from onex_platform.projections.rebuild import proof
from onex_platform.projections.rebuild.rebuild import open_rebuild
from onex_platform.projections.rebuild.scopes import parse_moment, scope_of
from onex_platform.projections.reconciliation import look, settle


class SampleOfRows(dg.Config):
    """About how many rows a proof compares; none given: all of them, from the log's beginning."""

    rows: int | None = 200


class Recount(dg.Config):
    """Whether what was found right before is counted again."""

    whole: bool = False


class RebuildConfig(dg.Config):
    """What is rebuilt: one node, by its UUID or by its plain id and tenant, or the nodes that had
    events in the window, whose times have a zone. By default everything; nothing is changed."""

    dry_run: bool = True
    entity: str | None = None
    tenant: str | None = None
    window_start: str | None = None
    window_end: str | None = None
    most_changes: int | None = None

    def scope(self, settings: Settings) -> Scope:
        since, until = (
            None if text is None else parse_moment(text)
            for text in (self.window_start, self.window_end)
        )
        return scope_of(settings, node=self.entity, tenant=self.tenant, since=since, until=until)


def build_definitions(settings: Settings) -> dg.Definitions:
    return dg.Definitions(
        assets=[registration_projections, _history(settings)],
        asset_checks=[accounting, fold_keeps_up, nobody_is_set_aside, live_equals_replay],
        jobs=[rebuild_registration],
    )


@dg.asset(
    key=wiring.REGISTRATION_PROJECTIONS,
    deps=[dg.AssetDep(wiring.EVENT_PAGES, partition_mapping=dg.AllPartitionMapping())],
    freshness_policy=wiring.HOURLY,
    pool=wiring.WRITER_POOL,
    group_name=wiring.GROUP,
    owners=wiring.OWNERS,
    kinds={"postgres", "spark"},
)
def registration_projections(
    spark: dg.ResourceParam[PySparkResource], log: dg.ResourceParam[PageLog]
) -> dg.MaterializeResult[None]:
    """The registry: what the log says of each node, folded up to the log's head."""
    batches = fold_to(spark.spark_session, log, policy_of(log.settings))
    return dg.MaterializeResult(metadata=_numbers(batches) if batches else {})


def _history(settings: Settings) -> dg.AssetsDefinition:
    hours = wiring.hours(settings)

    @dg.asset(
        key=wiring.REGISTRATION_HISTORY,
        # Of the rows it needs nothing, but only the fold writes what was decided into the log. A
        # backfill may leave the rows out, so what is not folded yet is folded here: as a writer.
        deps=[wiring.EVENT_PAGES, wiring.REGISTRATION_PROJECTIONS],
        partitions_def=hours,
        backfill_policy=dg.BackfillPolicy.single_run(),
        freshness_policy=wiring.HOURLY,
        pool=wiring.WRITER_POOL,
        group_name=wiring.GROUP,
        owners=wiring.OWNERS,
        kinds={"parquet", "spark"},
    )
    def registration_history(
        context: dg.AssetExecutionContext,
        spark: dg.ResourceParam[PySparkResource],
        log: dg.ResourceParam[PageLog],
    ) -> None:
        """Each hour's end state of every node, made of the log alone, which is folded first."""
        window = wiring.hours_of_run(context)
        batches = fold_to(spark.spark_session, log, policy_of(log.settings), window.end)
        if batches:
            context.log_event(
                dg.AssetMaterialization(wiring.REGISTRATION_PROJECTIONS, metadata=_numbers(batches))
            )
        hour = window.start
        while hour < window.end:
            state = write_hour(spark.spark_session, log, hour)
            context.add_asset_metadata(
                {"nodes": state.nodes, "files": len(state.files)},
                partition_key=wiring.hour_key(hours, hour),
            )
            hour += HOUR

    return registration_history


@dg.asset_check(asset=wiring.REGISTRATION_PROJECTIONS, blocking=True)
def accounting(config: Recount, log: dg.ResourceParam[PageLog]) -> dg.AssetCheckResult:
    """Every record that was read, and every fact that was decided, has exactly one outcome: what
    is new with every run, everything again every night."""
    found = look(log, whole=config.whole)
    settle(log, found)
    return dg.AssetCheckResult(**checks.accounting(found)._asdict())


@dg.asset_check(asset=wiring.REGISTRATION_PROJECTIONS)
def fold_keeps_up(platform: dg.ResourceParam[PlatformContext]) -> dg.AssetCheckResult:
    """Nothing waits in the log for longer than consumers of the registry's state may expect."""
    return dg.AssetCheckResult(**checks.fold_keeps_up(platform, datetime.now(UTC))._asdict())


@dg.asset_check(asset=wiring.REGISTRATION_PROJECTIONS)
def nobody_is_set_aside(platform: dg.ResourceParam[PlatformContext]) -> dg.AssetCheckResult:
    """The events of every node are folded; those of a node for which the code raises are not."""
    return dg.AssetCheckResult(**checks.nobody_is_set_aside(platform, datetime.now(UTC))._asdict())


@dg.asset_check(asset=wiring.REGISTRATION_PROJECTIONS, blocking=True, pool=wiring.MAINTENANCE_POOL)
def live_equals_replay(
    config: SampleOfRows,
    spark: dg.ResourceParam[PySparkResource],
    log: dg.ResourceParam[PageLog],
) -> dg.AssetCheckResult:
    """The rows are what the log says: a sample with every run, all of them every night. Nodes that
    are set aside are named, and hold nothing up: `nobody_is_set_aside` is about them."""
    found = proof.live_equals_replay(spark.spark_session, log, config.rows)
    warns = dg.AssetCheckSeverity.WARN if found.is_contained else dg.AssetCheckSeverity.ERROR
    return dg.AssetCheckResult(**checks.live_equals_replay(found)._asdict(), severity=warns)


@dg.op(pool=wiring.MAINTENANCE_POOL)
def rebuild_rows(
    context: dg.OpExecutionContext,
    config: RebuildConfig,
    spark: dg.ResourceParam[PySparkResource],
    log: dg.ResourceParam[PageLog],
) -> None:
    """Fold the log into a side table, compare, and unless it is a dry run swap what differs in."""
    with open_rebuild(spark.spark_session, log, config.scope(log.settings)) as rebuild:
        if config.dry_run:
            rebuild.catch_up()
            found = rebuild.compare()
        else:
            found = rebuild.swap(config.most_changes)
    context.add_output_metadata(checks.compared_numbers(found))


@dg.job
def rebuild_registration() -> None:
    """Rebuild the rows from the log: all of them, one node's, or those that a time window touched.

    A dry run only compares. The swap is one transaction behind its own checks, emits nothing, and
    leaves the live table whole wherever the run is cancelled.
    """
    rebuild_rows()


def _numbers(batches: list[FoldedBatch]) -> dict[str, int | str]:
    return {
        "folded up to": moment_of(batches[-1].end).isoformat(),
        "batches": len(batches),
        "facts": sum(batch.facts for batch in batches),
        "rows": sum(batch.written.rows for batch in batches),
        **{o.value: sum(batch.outcomes[o] for batch in batches) for o in EnumOutcome},
    }
