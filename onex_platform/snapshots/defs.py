"""The snapshots in the asset graph: the relay, what starts it, the sweep and the checks."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from uuid import UUID

import dagster as dg
from pydantic import Field

from onex_platform import wiring
from onex_platform.base.errors import ConfigurationError
from onex_platform.base.telemetry import shortened
from onex_platform.checks import Verdict
from onex_platform.context import PlatformContext
from onex_platform.domain.identity import identify_node
from onex_platform.snapshots import checks
from onex_platform.snapshots.audit import topic_compaction
from onex_platform.snapshots.audit.sweep import (
    REPAIRS_PER_SWEEP,
    Sweep,
    look,
    queue_entities,
    sweep,
)
from onex_platform.snapshots.publish import held_events
from onex_platform.snapshots.publish.relay import OutboxRelay, open_relay


class RelayConfig(dg.Config):
    """Nodes to publish whether they changed or not; none given: what waits in the outbox.

    A node is a UUID in any spelling, or the plain-text id that it uses in the platform's tenant.
    """

    entities: list[str] = Field(default_factory=list)


class ComparisonConfig(dg.Config):
    """Versions are compared in any case; what the records say, if asked for."""

    contents: bool = False


class TopicSweepConfig(ComparisonConfig):
    """A sweep is capped in repairs; a dry run only compares."""

    dry_run: bool = False
    raise_versions: bool = False
    most_repairs: int = REPAIRS_PER_SWEEP


def build_definitions() -> dg.Definitions:
    return dg.Definitions(
        assets=[registration_snapshots],
        asset_checks=[snapshot_topic_equals_projection, no_event_is_held_back, compaction_keeps_up],
        jobs=[publish_snapshots, sweep_snapshots],
        sensors=[publish_when_outbox_waits],
        schedules=[
            wiring.schedule(sweep_snapshots, "*/5 * * * *"),
            wiring.schedule(
                sweep_snapshots,
                "32 2 * * *",
                name="sweep_snapshots_with_contents",
                run_config={"ops": {compare_and_repair.name: {"config": {"contents": True}}}},
            ),
        ],
    )


@dg.asset(
    key=wiring.REGISTRATION_SNAPSHOTS,
    deps=[wiring.REGISTRATION_PROJECTIONS],
    group_name=wiring.GROUP,
    owners=wiring.OWNERS,
    kinds={"kafka", "postgres"},
)
def registration_snapshots(
    config: RelayConfig, platform: dg.ResourceParam[PlatformContext]
) -> dg.MaterializeResult[None]:
    """The registry in its compacted topic: everything that waited is acknowledged by the broker."""
    with _relay(platform) as relay:
        entities = {node: _entity(node, platform.settings.tenant) for node in config.entities}
        known = queue_entities(relay, set(entities.values()))
        account = relay.publish_pending()
        unknown = [node for node, entity in entities.items() if entity not in known]
        return dg.MaterializeResult(
            metadata={
                "topic": ", ".join(relay.writer.topics()),
                "queued on demand": len(known),
                **({"not in the registry": shortened(unknown)} if unknown else {}),
                **checks.relayed_numbers(account),
            }
        )


publish_snapshots = dg.define_asset_job(
    "publish_snapshots",
    selection=dg.AssetSelection.assets(wiring.REGISTRATION_SNAPSHOTS).without_checks(),
    description="Publish what waits in the outbox: snapshots, tombstones, the registry's events.",
)


@dg.sensor(
    job=publish_snapshots,
    minimum_interval_seconds=5,
    default_status=dg.DefaultSensorStatus.RUNNING,
)
def publish_when_outbox_waits(
    context: dg.SensorEvaluationContext, platform: dg.ResourceParam[PlatformContext]
) -> dg.RunRequest | dg.SkipReason:
    """Start the relay when something waits that no draining run will publish."""
    if reason := wiring.drained_by(context.instance, platform):
        return dg.SkipReason(f"{reason} It publishes what waits.")
    if reason := wiring.reason_to_wait(context.instance, platform, publish_snapshots.name):
        return dg.SkipReason(reason)
    with _relay(platform) as relay:
        waiting = relay.waiting()
    if not any(waiting):
        return dg.SkipReason("The outbox is empty.")
    context.log.info(f"{waiting.rows} rows and {waiting.events} events wait.")
    return dg.RunRequest()


@dg.op(pool=wiring.MAINTENANCE_POOL)
def compare_and_repair(
    config: TopicSweepConfig,
    platform: dg.ResourceParam[PlatformContext],
) -> Iterator[dg.AssetCheckEvaluation | dg.Output[None]]:
    """Compare rows and topic, queue what differs, and publish it; see whether it is compacted."""
    too_large: list[str] = []
    with _relay(platform) as relay:
        if config.dry_run:
            done = Sweep(look(relay, contents=config.contents))
        else:
            relay.publish_pending()
            done = sweep(
                relay,
                raise_versions=config.raise_versions,
                contents=config.contents,
                limit=config.most_repairs,
            )
            too_large = relay.publish_pending().too_large
        compacted, refused = _compaction(relay), _held(relay)
    # What the sweep found, before it repaired it: somebody should know.
    yield dg.AssetCheckEvaluation(
        asset_key=wiring.REGISTRATION_SNAPSHOTS,
        check_name="snapshot_topic_equals_projection",
        **checks.snapshot_topic_equals_projection(done.comparison)._asdict(),
    )
    yield dg.AssetCheckEvaluation(
        asset_key=wiring.REGISTRATION_SNAPSHOTS,
        check_name="compaction_keeps_up",
        **compacted._asdict(),
    )
    yield dg.AssetCheckEvaluation(
        asset_key=wiring.REGISTRATION_SNAPSHOTS,
        check_name="no_event_is_held_back",
        **refused._asdict(),
    )
    yield dg.Output(None, metadata=checks.swept_numbers(done, too_large))


@dg.job
def sweep_snapshots() -> None:
    """Compare database and topic, and publish what the topic lacks or has wrong."""
    compare_and_repair()


@dg.asset_check(asset=wiring.REGISTRATION_SNAPSHOTS)
def snapshot_topic_equals_projection(
    config: ComparisonConfig,
    platform: dg.ResourceParam[PlatformContext],
) -> dg.AssetCheckResult:
    """The topic's last record of every entity is its row's, or is on its way."""
    with _relay(platform) as relay:
        found = look(relay, contents=config.contents)
        verdict = checks.snapshot_topic_equals_projection(found)
    return dg.AssetCheckResult(**verdict._asdict())


@dg.asset_check(asset=wiring.REGISTRATION_SNAPSHOTS)
def no_event_is_held_back(platform: dg.ResourceParam[PlatformContext]) -> dg.AssetCheckResult:
    """Kafka takes every event of the registry; one that it refuses holds up its own node."""
    with _relay(platform) as relay:
        return dg.AssetCheckResult(**_held(relay)._asdict())


@dg.asset_check(asset=wiring.REGISTRATION_SNAPSHOTS)
def compaction_keeps_up(platform: dg.ResourceParam[PlatformContext]) -> dg.AssetCheckResult:
    """Records that newer ones supersede leave the topic as soon as its settings promise."""
    with _relay(platform) as relay:
        return dg.AssetCheckResult(**_compaction(relay)._asdict())


def _compaction(relay: OutboxRelay) -> Verdict:
    topic = relay.writer.topics()[-1]
    return topic_compaction.compaction_keeps_up(relay.settings, topic, datetime.now(UTC))


def _held(relay: OutboxRelay) -> Verdict:
    now = datetime.now(UTC)
    return held_events.no_event_is_held_back(relay.database, relay.domain, now)


def _entity(node: str, tenant: str) -> UUID:
    try:
        return identify_node(node, tenant).entity_id
    except ValueError as error:
        raise ConfigurationError(f"entities={node!r}: {error}.") from None


@contextmanager
def _relay(platform: PlatformContext) -> Iterator[OutboxRelay]:
    with open_relay(
        platform.settings, platform.catalogue, database=platform.database, domain=platform.domain
    ) as relay:
        yield relay
