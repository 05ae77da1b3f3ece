"""The canaries in Dagster: a sensor that lets them go on, the asset they make, its checks."""

from __future__ import annotations

from datetime import UTC, datetime

import dagster as dg

from onex_platform import wiring
from onex_platform.context import PlatformContext
from onex_platform.health.canaries.following import CanaryReport, follow, look
from onex_platform.topics.catalogue import Catalogue

CANARIES = dg.AssetKey("canaries")
# Between two looks; a life waits at a step for no longer.
_LOOK_SECONDS = 10


def build_definitions(catalogue: Catalogue) -> dg.Definitions:
    """`catalogue` has the topics of all services: samples go there, too."""
    return dg.Definitions(
        assets=[_asset(catalogue)],
        asset_checks=[_canaries_get_through(catalogue), _contracts_name_all_groups(catalogue)],
        sensors=[_follow_canaries(catalogue)],
    )


def _asset(catalogue: Catalogue) -> dg.AssetsDefinition:
    @dg.asset(
        key=CANARIES,
        deps=[wiring.REGISTRATION_SNAPSHOTS],
        group_name=wiring.GROUP,
        owners=wiring.OWNERS,
        kinds={"kafka", "postgres"},
    )
    def canaries(platform: dg.ResourceParam[PlatformContext]) -> dg.MaterializeResult[None]:
        """The last life of the platform's own node, and how far groups have read past its samples.
        Where canaries are enabled, they go on as far as they can."""
        glance = follow if platform.settings.canary.enabled else look
        return dg.MaterializeResult(
            metadata=_numbers(glance(platform, catalogue, datetime.now(UTC)))
        )

    return canaries


def _follow_canaries(catalogue: Catalogue) -> dg.SensorDefinition:
    @dg.sensor(
        minimum_interval_seconds=_LOOK_SECONDS, default_status=dg.DefaultSensorStatus.RUNNING
    )
    def follow_canaries(
        context: dg.SensorEvaluationContext, platform: dg.ResourceParam[PlatformContext]
    ) -> dg.SensorResult | dg.SkipReason:
        """Let the canaries go on as far as they can, where they are enabled; starts no run."""
        if not platform.settings.canary.enabled:
            return dg.SkipReason("ONEX_CANARY_ENABLED is off.")
        report = follow(platform, catalogue, datetime.now(UTC))
        if report.life is None or str(report.life) == context.cursor:
            return dg.SkipReason("Nothing new.")
        observed = dg.AssetObservation(CANARIES, metadata=_numbers(report))
        return dg.SensorResult(asset_events=[observed], cursor=str(report.life))

    return follow_canaries


def _canaries_get_through(catalogue: Catalogue) -> dg.AssetChecksDefinition:
    @dg.asset_check(asset=CANARIES)
    def canaries_get_through(
        platform: dg.ResourceParam[PlatformContext],
    ) -> dg.AssetCheckResult:
        """The last life went through, every group reads on, and nobody is missed."""
        report = look(platform, catalogue, datetime.now(UTC))
        wrong = [trouble.message for trouble in report.troubles if trouble.over_at is None]
        return dg.AssetCheckResult(
            passed=not wrong,
            description=" ".join(wrong) or "No canary is stopped, and nobody is waited for.",
            metadata=_numbers(report),
        )

    return canaries_get_through


def _contracts_name_all_groups(catalogue: Catalogue) -> dg.AssetChecksDefinition:
    @dg.asset_check(asset=CANARIES)
    def contracts_name_all_groups(
        platform: dg.ResourceParam[PlatformContext],
    ) -> dg.AssetCheckResult:
        """Every group that reads a sampled topic belongs to a consumer of its contract."""
        report = look(platform, catalogue, datetime.now(UTC))
        named = [f"{group} in {topic}" for topic, group in report.unnamed]
        return dg.AssetCheckResult(
            passed=not named,
            severity=dg.AssetCheckSeverity.WARN,
            description=f"No contract names {', '.join(named)}." if named else "All are named.",
            metadata={"unnamed": len(named)},
        )

    return contracts_name_all_groups


def _numbers(report: CanaryReport) -> dict[str, int | float | str]:
    life = report.life
    waiting = sum(state.awaited is not None for state in report.states)
    return {
        **({} if life is None else {f"{name} seconds": s for name, s in life.seconds().items()}),
        "stopped at": (life.stopped_at or "") if life else "",
        "groups": len(report.states),
        "waiting groups": waiting,
        "unnamed groups": ", ".join(sorted({group for _, group in report.unnamed})),
        "reader waits since": "" if (since := report.probes.waiting_since) is None else str(since),
        "holders": sum(not beat.is_last for beat in report.leases),
        "troubles": sum(trouble.over_at is None for trouble in report.troubles),
    }
