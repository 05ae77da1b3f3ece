"""The clock in the asset graph: a scan, what starts it, and the check that nobody is forgotten."""

from datetime import UTC, datetime

import dagster as dg

from onex_platform import wiring
from onex_platform.context import PlatformContext
from onex_platform.deadlines.checks import account_numbers
from onex_platform.deadlines.checks import no_overdue_without_fact as judge_overdue
from onex_platform.deadlines.scan import note_watch, scan
from onex_platform.deadlines.scan_state import flapping, holds


class ScanConfig(dg.Config):
    """A scan is bounded by the settings; a dry run only counts."""

    dry_run: bool = False


def build_definitions() -> dg.Definitions:
    return dg.Definitions(
        asset_checks=[no_overdue_without_fact],
        jobs=[scan_deadlines],
        sensors=[scan_when_overdue],
    )


@dg.op
def declare_timeouts(
    context: dg.OpExecutionContext, config: ScanConfig, platform: dg.ResourceParam[PlatformContext]
) -> None:
    """Declare what is overdue; the facts wait for the next cut."""
    now = datetime.now(UTC)
    account = scan(platform, now, dry_run=config.dry_run)
    open_holds = holds(platform, "open")
    for hold in open_holds:
        context.log.warning(
            f"Expiries of {hold.tenant} are held since {hold.since}: {hold.held} nodes, "
            f"{hold.expiry_limit} of {hold.fleet} may expire at once."
        )
    context.add_output_metadata(
        {
            **account_numbers(account),
            "alerts": account.alerts,
            "holds": len(open_holds),
            "flapping": len(flapping(platform, now)),
        }
    )


@dg.job
def scan_deadlines() -> None:
    """Turn silence into facts: once, as far as the evidence goes, and not too much at a time."""
    declare_timeouts()


@dg.sensor(
    job=scan_deadlines,
    minimum_interval_seconds=10,
    default_status=dg.DefaultSensorStatus.RUNNING,
)
def scan_when_overdue(
    context: dg.SensorEvaluationContext, platform: dg.ResourceParam[PlatformContext]
) -> dg.RunRequest | dg.SkipReason:
    """Keep the watch, and start a scan when a deadline has passed and no draining run scans."""
    # A draining run looks as well, but not while it starts, nor during a long fold.
    due = note_watch(platform, datetime.now(UTC))
    if reason := wiring.drained_by(context.instance, platform):
        return dg.SkipReason(f"{reason} It scans the deadlines.")
    if reason := wiring.reason_to_wait(context.instance, platform, scan_deadlines.name):
        return dg.SkipReason(reason)
    return dg.RunRequest() if due else dg.SkipReason("No deadline can be judged now.")


@dg.asset_check(asset=wiring.REGISTRATION_PROJECTIONS)
def no_overdue_without_fact(platform: dg.ResourceParam[PlatformContext]) -> dg.AssetCheckResult:
    """Every deadline that has passed became a fact, or does not on purpose; a hold is a warning."""
    found = judge_overdue(platform, datetime.now(UTC))
    severity = dg.AssetCheckSeverity.WARN if found.is_warning else dg.AssetCheckSeverity.ERROR
    return dg.AssetCheckResult(**found.verdict._asdict(), severity=severity)
