"""The service's health in the asset graph: its numbers, its alerts, and who looks."""

from collections.abc import Iterator
from datetime import UTC, datetime

import dagster as dg

from onex_platform import wiring
from onex_platform.context import PlatformContext
from onex_platform.health import checks
from onex_platform.health.thresholds import EnumGroup, EnumLevel
from onex_platform.health.watching import look_after, report, standing
from onex_platform.log.page_log import PageLog
from onex_platform.topics.signals import Published

_CHECKS = {
    group: dg.AssetCheckSpec(
        f"{group}_is_fine",
        asset=wiring.SERVICE_HEALTH,
        description=f"No number of {group} is beyond a threshold that alerts.",
    )
    for group in EnumGroup
}


def build_definitions() -> dg.Definitions:
    measuring = dg.define_asset_job(
        "measure_health",
        selection=dg.AssetSelection.assets(wiring.SERVICE_HEALTH),
        description="Measure the service, publish the numbers, and judge them.",
    )
    return dg.Definitions(
        assets=[service_health],
        asset_checks=[numbers_are_fine, no_alert_is_raised],
        jobs=[measuring],
        sensors=[watch_alerts],
        schedules=[wiring.schedule(measuring, "*/5 * * * *")],
    )


@dg.asset(
    key=wiring.SERVICE_HEALTH,
    group_name=wiring.GROUP,
    owners=wiring.OWNERS,
    kinds={"postgres", "kafka"},
)
def service_health(
    platform: dg.ResourceParam[PlatformContext],
    published: dg.ResourceParam[Published],
    log: dg.ResourceParam[PageLog],
) -> dg.MaterializeResult[None]:
    """The service in numbers, kept for alerts and metrics, and published; a broker that does not
    take them fails nobody."""
    look = look_after(platform, log, datetime.now(UTC))
    levels = [item.level for item in look.measurement.readings]
    return dg.MaterializeResult(
        metadata={
            **{level.value: levels.count(level) for level in EnumLevel},
            "alerts changed": len(look.changed),
            "alerts told": look.told,
            "published records": report(platform, published, look.measurement),
        }
    )


@dg.multi_asset_check(specs=list(_CHECKS.values()), can_subset=True)
def numbers_are_fine(
    context: dg.AssetCheckExecutionContext, platform: dg.ResourceParam[PlatformContext]
) -> Iterator[dg.AssetCheckResult]:
    """By group, no number of the last measurement is beyond a threshold that alerts."""
    last = standing(platform, datetime.now(UTC)).measurement
    for group, spec in _CHECKS.items():
        if spec.key in context.selected_asset_check_keys:
            found = checks.numbers_are_fine(last, group)
            yield dg.AssetCheckResult(check_name=spec.name, **found._asdict())


@dg.asset_check(asset=wiring.SERVICE_HEALTH)
def no_alert_is_raised(platform: dg.ResourceParam[PlatformContext]) -> dg.AssetCheckResult:
    """No alert is raised, but for those that an operator has silenced."""
    now = standing(platform, datetime.now(UTC))
    found = checks.no_alert_is_raised(now.alerts, now.silences)
    return dg.AssetCheckResult(**found._asdict())


@dg.sensor(minimum_interval_seconds=60, default_status=dg.DefaultSensorStatus.RUNNING)
def watch_alerts(
    platform: dg.ResourceParam[PlatformContext], log: dg.ResourceParam[PageLog]
) -> dg.SkipReason:
    """Measure every minute, and raise, resolve and tell alerts; no run is needed for it."""
    look = look_after(platform, log, datetime.now(UTC))
    return dg.SkipReason(f"{len(look.changed)} alerts changed, {look.told} were told.")
