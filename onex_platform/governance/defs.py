"""Governance in the asset graph: drift as a check with numbers, the review as a schedule."""

from collections import Counter
from collections.abc import Callable

import dagster as dg

from onex_platform.base.settings import Settings
from onex_platform.governance.cluster import plan
from onex_platform.governance.governed import Governed
from onex_platform.governance.review import review
from onex_platform.topics.catalogue import Catalogue

_QUARTERLY = "0 6 1 1,4,7,10 *"
_MOST_NAMED = 20


def build_definitions(
    catalogue: Catalogue, as_moved: Callable[[Settings, Catalogue], Catalogue]
) -> dg.Definitions:
    """`as_moved` gives the catalogue as far as its topics have moved when it is asked."""
    cluster = dg.AssetSpec(
        key="kafka_cluster",
        group_name="topics",
        kinds={"kafka"},
        owners=["team:platform-operations"],
        description="The cluster that holds the topics, with its rights, quotas and subjects.",
    )

    @dg.asset_check(asset=cluster.key, name="topics_agree_with_contracts")
    def topics_agree_with_contracts(settings: dg.ResourceParam[Settings]) -> dg.AssetCheckResult:
        """Whether topics, settings, rights, quotas and subjects are as the contracts say."""
        found = plan(Governed.of(settings, as_moved(settings, catalogue)))
        kinds = Counter(step.kind for step in found.steps)
        return dg.AssetCheckResult(
            passed=found.agrees,
            severity=dg.AssetCheckSeverity.WARN,
            metadata={
                "steps": len(found.steps),
                **{f"steps: {kind}": count for kind, count in kinds.items()},
                "impossible": len(found.refusals),
                "strangers": len(found.strangers),
                "dangerous rights": len(found.dangers),
                "notes": "\n".join(found.notes) or "none",
                "drift": "\n".join(map(str, found.steps[:_MOST_NAMED])) or "none",
            },
        )

    @dg.op(name="review_topics")
    def review_topics(context: dg.OpExecutionContext, settings: dg.ResourceParam[Settings]) -> None:
        """Log what nobody uses and what falls due."""
        found = review(Governed.of(settings, as_moved(settings, catalogue)))
        for due in found:
            context.log.warning(str(due))
        context.add_output_metadata({"due": len(found)})

    @dg.job(name="topic_review")
    def topic_review() -> None:
        review_topics()

    return dg.Definitions(
        assets=[cluster],
        asset_checks=[topics_agree_with_contracts],
        jobs=[topic_review],
        schedules=[
            dg.ScheduleDefinition(
                name="quarterly_topic_review",
                job=topic_review,
                cron_schedule=_QUARTERLY,
                default_status=dg.DefaultScheduleStatus.RUNNING,
            )
        ],
    )
