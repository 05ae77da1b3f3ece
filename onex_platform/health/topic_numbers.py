"""Lag, throughput and errors of topics and groups; no record of theirs is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from onex_platform.context import PlatformContext
from onex_platform.domain.events import EnumEventKind
from onex_platform.engines.kafka.clients import KafkaAdmin, Positions, open_admin
from onex_platform.engines.kafka.group_offsets import committed, end_offsets, offsets_at
from onex_platform.engines.kafka.topic_admin import topic_names
from onex_platform.engines.kafka.usage import reading_groups
from onex_platform.health.thresholds import EnumLevel, Reading, Thresholds, reading
from onex_platform.ingest.inputs import input_ids, next_offsets
from onex_platform.ingest.lag import topic_states
from onex_platform.ingest.letters.letter_report import parked_since
from onex_platform.migration.present import platform_now
from onex_platform.projections.write.batch_counts import illegal_since
from onex_platform.topics.contract import TopicContract

RATE_WINDOW = timedelta(minutes=1)
ERROR_WINDOW = timedelta(minutes=5)


def lag_readings(platform: PlatformContext, now: datetime) -> list[Reading]:
    """How far the archive is behind its topics, by the thresholds of their categories."""
    platform = platform_now(platform)
    inputs = platform.catalogue.registration_inputs()
    states = topic_states(
        platform.settings, inputs, next_offsets(platform), now, input_ids(platform).made_anew
    )
    bounds = {contract.topic: Thresholds.of_lag(contract.lag) for contract in inputs}
    return [
        reading("lag_seconds", state.topic, state.lag.seconds, bounds[state.topic])
        for state in states
        if state.lag is not None
    ]


def rate_readings(platform: PlatformContext, now: datetime) -> list[Reading]:
    """How much comes into each topic of the catalogue."""
    with open_admin(platform.settings) as admin:
        found = []
        for contract in _present(admin, platform_now(platform).catalogue):
            began = offsets_at(admin, contract.topic, now - RATE_WINDOW)
            records = _between(began, end_offsets(admin, contract.topic))
            rate = records / RATE_WINDOW.total_seconds()
            found.append(reading("records_per_second", contract.topic, rate))
            if contract.event_kind is EnumEventKind.NODE_HEARTBEAT:
                found.append(reading("heartbeats_per_second", contract.topic, rate))
        return found


def error_readings(platform: PlatformContext, now: datetime) -> list[Reading]:
    """How much of what came into the input topics was parked, or refused by the fold."""
    since, catalogue = now - ERROR_WINDOW, platform_now(platform).catalogue
    with platform.database.transaction() as cursor:
        errors = parked_since(cursor, platform.domain, since)
        for kind, count in illegal_since(cursor, platform.domain, since).items():
            topic = catalogue.for_kind(kind).topic
            errors[topic] = errors.get(topic, 0) + count
    inputs = [contract.topic for contract in catalogue.registration_inputs()]
    return [
        reading("errors_percent", topic, percent)
        for topic, percent in _shares(platform, inputs, errors, since).items()
    ]


def group_readings(platform: PlatformContext, now: datetime) -> list[Reading]:
    """How far groups are behind the topics that they read, in steps of the categories' bounds.

    Left out are topics written in transactions: behind their last record stands a marker, which no
    group ever commits.
    """
    with open_admin(platform.settings) as admin:
        contracts = {
            contract.topic: contract
            for contract in _present(admin, platform_now(platform).catalogue)
            if contract.snapshot_of is None
        }
        found = []
        for topic, groups in sorted(reading_groups(admin, contracts).items()):
            lag = contracts[topic].lag
            passed = [
                (bound, level, offsets_at(admin, topic, now - timedelta(seconds=bound)))
                for bound, level in zip(lag, list(EnumLevel)[1:], strict=True)
            ]
            for group in sorted(groups):
                at = committed(admin, group, topic)
                seconds, level = 0, EnumLevel.FINE
                for bound, worse, due in passed:
                    if any(offset < due.get(place, 0) for place, offset in at.items()):
                        seconds, level = bound, worse
                found.append(Reading("group_lag_seconds", f"{topic} {group}", seconds, level))
        return found


def _present(admin: KafkaAdmin, catalogue: Iterable[TopicContract]) -> list[TopicContract]:
    """The topics of the catalogue that are on the broker."""
    there = topic_names(admin)
    return [contract for contract in catalogue if contract.topic in there]


def _between(began: Positions, ends: Positions) -> int:
    return sum(max(ends[place] - began.get(place, 0), 0) for place in ends)


def _shares(
    platform: PlatformContext, topics: Iterable[str], errors: Mapping[str, int], since: datetime
) -> dict[str, float]:
    """Errors in percent of what came; the broker is asked only of topics that have some."""
    shares = dict.fromkeys(topics, 0.0)
    with open_admin(platform.settings) as admin:
        for topic in shares.keys() & errors.keys():
            came = _between(offsets_at(admin, topic, since), end_offsets(admin, topic))
            shares[topic] = 100 * errors[topic] / max(came, errors[topic])
    return shares
