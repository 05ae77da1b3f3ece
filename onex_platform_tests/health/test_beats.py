"""What heartbeats tell: by a sample of the pages, tenant by tenant."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onex_platform.base.settings import RegistrationSettings
from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.identity import CANARY_ID, CANARY_TENANT
from onex_platform.health.beats import Beat, Limits, beat_readings, sample_beats
from onex_platform.health.thresholds import EnumLevel, Reading
from onex_platform_tests.support.events import TENANT, at, number_id
from onex_platform_tests.support.written_logs import WrittenLog

USUAL = RegistrationSettings()


def beats_at(node: int, *seconds: float, tenant: str = TENANT, **payload: Any) -> list[Beat]:
    return [Beat(number_id(node), tenant, at(second), 300, payload) for second in seconds]


def readings(beats: list[Beat], **limits: Limits) -> dict[tuple[str, str], Reading]:
    of_nodes = {number_id(int(name.removeprefix("n"))): limit for name, limit in limits.items()}
    found = beat_readings(beats, of_nodes, USUAL)
    return {(item.metric.removesuffix("_percent"), item.scope): item for item in found}


def test_a_regular_fleet_is_fine() -> None:
    beats = [beat for node in range(9) for beat in beats_at(node, node, 30 + node, 60.5 + node)]
    found = readings(beats)
    assert found["heartbeat_interval_seconds", TENANT].value == 30.5
    assert found["heartbeat_jitter_seconds", TENANT].value == 0.5
    assert {item.level for item in found.values()} == {EnumLevel.FINE}


def test_order_does_not_matter_and_nodes_are_not_mixed() -> None:
    beats = beats_at(1, 90, 0, 30, 60) + beats_at(2, 45, 15, 75)
    assert readings(beats)["heartbeat_interval_seconds", TENANT].value == 30
    assert readings(beats[::-1]) == readings(beats)


def test_each_tenant_has_its_own_numbers() -> None:
    found = readings(beats_at(1, 0, 30) + beats_at(2, 0, 100, tenant="slow"))
    assert found["heartbeat_interval_seconds", TENANT].level is EnumLevel.FINE
    assert found["heartbeat_interval_seconds", "slow"].level is EnumLevel.WARNING


def test_a_node_that_beat_once_says_nothing_of_intervals() -> None:
    assert {metric for metric, _ in readings(beats_at(1, 0))} == {"heartbeat_size_bytes"}


def test_the_canary_is_no_node_of_the_fleet() -> None:
    canary = [b._replace(entity_id=CANARY_ID) for b in beats_at(1, 0, 300, tenant=CANARY_TENANT)]
    assert readings(canary) == {}


def test_load_is_that_of_the_last_heartbeat_against_what_the_node_announced() -> None:
    busy = {"cpu_usage_percent": 90, "memory_usage_mb": 850, "active_operations_count": 8}
    calm = {"cpu_usage_percent": 5, "memory_usage_mb": 10, "active_operations_count": 0}
    limits = Limits(memory_mb=1000, operations=8)
    found = readings(beats_at(1, 0, **calm) + beats_at(1, 30, **busy), n1=limits)
    assert {metric: item.level for (metric, _), item in found.items() if "node" in metric} == {
        "node_cpu": EnumLevel.CRITICAL,
        "node_memory": EnumLevel.WARNING,
        "node_operations": EnumLevel.WARNING,
    }
    unlimited = readings(beats_at(1, 30, **busy))
    assert {metric for metric, _ in unlimited if "node" in metric} == {"node_cpu"}


@given(st.lists(st.floats(0, 400), min_size=2, max_size=30, unique=True))
def test_an_interval_lies_between_the_shortest_and_the_longest(seconds: list[float]) -> None:
    ordered = sorted(seconds)
    gaps = [later - earlier for earlier, later in pairwise(ordered)]
    found = readings(beats_at(1, *seconds))["heartbeat_interval_seconds", TENANT].value
    assert min(gaps) - 0.001 <= found <= max(gaps) + 0.001


@pytest.mark.servers
def test_minute_by_minute_every_node_is_sampled_with_all_of_its_heartbeats(
    log: WrittenLog,
) -> None:
    log.cuts(30)
    kept = Counter(
        event.entity.entity_id
        for event in log.run.log
        if event.kind is EnumEventKind.NODE_HEARTBEAT
    )
    samples = [sample_beats(log.archive.log, at(second)) for second in (150, 180, 240, 300)]
    sampled = [Counter(beat.entity_id for beat in sample) for sample in samples]
    assert sum(sampled, Counter()) == kept
    assert all(
        not (one.keys() & other.keys()) for one in sampled for other in sampled if one is not other
    )


@pytest.mark.servers
def test_no_more_heartbeats_are_read_than_allowed(log: WrittenLog) -> None:
    log.cuts(30)
    address = log.archive.log.address
    health = address.settings.health.model_copy(update={"sample_heartbeats": 10})
    settings = address.settings.model_copy(update={"health": health})
    few = replace(log.archive.log, address=replace(address, settings=settings))
    sample = sample_beats(few, at(150))
    assert 0 < len(sample) <= 10
    assert max(beat.at for beat in sample) == max(
        beat.at for beat in sample_beats(log.archive.log, at(150))
    )
