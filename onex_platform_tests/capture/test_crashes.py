"""SIGKILL before and after every named effect: nothing that was acknowledged is lost or doubled."""

from __future__ import annotations

from pathlib import Path

import pytest

from onex_platform.base import faults
from onex_platform_tests.campaigns.capture_crashes import EFFECTS, POINTS, play_round

pytestmark = pytest.mark.servers
_ROUNDS = 40


@pytest.mark.parametrize("block", range(4))
def test_each_round_ends_with_every_promise_kept(block: int, tmp_path: Path) -> None:
    deaths = 0
    for seed in range(block * _ROUNDS // 4, (block + 1) * _ROUNDS // 4):
        deaths += play_round(tmp_path / str(seed), seed)
    assert deaths


def test_the_rounds_reach_every_point_of_every_effect_in_the_code() -> None:
    named = {point.name for point in faults.points() if point.station == "capture"}
    # Reconciliation and compaction are commands of their own, and schemas are registered before
    # anything is captured; their tests interrupt them.
    assert named == {
        *EFFECTS,
        "capture.rebuild_index",
        "capture.remove_page",
        "capture.write_merged",
        "capture.replace_pages",
        "capture.set_mode",
        "capture.register_schema",
    }
    assert {POINTS[seed % len(POINTS)] for seed in range(_ROUNDS)} == set(POINTS)
