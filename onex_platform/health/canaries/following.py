"""One look of the canaries, bounded: the node goes on with its life, samples are sent, groups and
signs of life are judged, and what is wrong is told. Any process may do it, as often as it likes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from onex_platform.context import PlatformContext
from onex_platform.health.canaries.group_rules import GroupState
from onex_platform.health.canaries.group_watch import (
    Readers,
    broken_groups,
    look_at_groups,
    note_groups,
    present_topics,
    send_samples,
)
from onex_platform.health.canaries.lease_watch import (
    LeaseBeat,
    look_at_leases,
    missed_leases,
    note_leases,
)
from onex_platform.health.canaries.life_steps import Life
from onex_platform.health.canaries.node_life import live_on, lives
from onex_platform.health.canaries.probe_reader import (
    Probes,
    look_at_probes,
    probe,
    still_reader,
)
from onex_platform.health.canaries.troubles import (
    KnownTrouble,
    Trouble,
    known_troubles,
    note_troubles,
    tell_troubles,
)
from onex_platform.topics.catalogue import Catalogue

_NODE = "node"
_KINDS = (_NODE, "group", "lease", "reader")


@dataclass(frozen=True, slots=True)
class CanaryReport:
    """What is known of the canaries."""

    life: Life | None  # the last one that has ended, or else the one that goes on
    states: tuple[GroupState, ...]
    unnamed: tuple[tuple[str, str], ...]
    leases: tuple[LeaseBeat, ...]
    probes: Probes
    troubles: tuple[KnownTrouble, ...]

    @property
    def is_well(self) -> bool:
        return not any(trouble.over_at is None for trouble in self.troubles)


def follow(platform: PlatformContext, catalogue: Catalogue, now: datetime) -> CanaryReport:
    """Do all that can be done now, and wait for nothing. `catalogue` has all topics."""
    period = timedelta(seconds=platform.settings.canary.period_seconds)
    live_on(platform, now)
    topics = present_topics(platform, catalogue)
    send_samples(platform, topics, now)
    readers = look_at_groups(platform, topics, now)
    note_groups(platform, readers.states, now)
    leases = look_at_leases(platform, now)
    note_leases(platform, leases, now)
    probes = probe(platform, catalogue, now)
    silence = timedelta(seconds=platform.settings.health.lease_silence_seconds)
    found = [
        *_stopped_node(platform),
        *broken_groups(readers.states, now, period),
        *missed_leases(leases, now, silence),
        *still_reader(probes, now, period),
    ]
    note_troubles(platform, _KINDS, found, now)
    tell_troubles(platform, now)
    return _report(platform, readers, leases)


def look(platform: PlatformContext, catalogue: Catalogue, now: datetime) -> CanaryReport:
    """What is known, and where groups are; nothing is sent or written."""
    readers = look_at_groups(platform, present_topics(platform, catalogue), now)
    return _report(platform, readers, look_at_leases(platform, now))


def _report(
    platform: PlatformContext, readers: Readers, leases: Mapping[str, LeaseBeat]
) -> CanaryReport:
    with platform.database.transaction() as cursor:
        recent = list(lives(cursor, platform.domain, 2))
        probes, troubles = look_at_probes(cursor), tuple(known_troubles(cursor))
    ended = (life for life in recent if life.ended_at is not None)
    return CanaryReport(
        next(ended, recent[0] if recent else None),
        readers.states,
        readers.unnamed,
        tuple(leases[name] for name in sorted(leases)),
        probes,
        troubles,
    )


def _stopped_node(platform: PlatformContext) -> list[Trouble]:
    """The last life that has ended, if it got no further than some step."""
    with platform.database.transaction() as cursor:
        recent = lives(cursor, platform.domain, 2)
        last = next((life for life in recent if life.ended_at is not None), None)
    if last is None or last.stopped_at is None:
        return []
    seconds = platform.settings.canary.period_seconds
    return [
        Trouble(
            f"{_NODE} {platform.domain}",
            f"The canary of {platform.domain} got no further than to {last.stopped_at!r} in "
            f"{seconds:g} s: {_WAITS[last.stopped_at]}.",
            {"domain": platform.domain, "step": last.stopped_at, "epoch": last.epoch},
        )
    ]


# By the step at which a life stopped: what was missing.
_WAITS = {
    "introspected": "its introspection could not be sent",
    "ack_requested": "no request to acknowledge came; is the pipeline at work and the decider on",
    "acknowledged": "its acknowledgement could not be sent",
    "registered": "its acknowledgement did not register it",
    "beaten": "its heartbeat could not be sent",
    "alive": "its heartbeat did not reach its row",
    "published": "its snapshot did not reach the topic",
    "left": "its shutdown could not be sent",
    "deregistered": "its shutdown did not reach its row",
}
