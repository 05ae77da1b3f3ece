"""SIGKILL before and after every named effect: nothing that was acknowledged is lost or doubled."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from onex_platform import capture
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
    named = {
        name
        for path in Path(capture.__file__).parent.rglob("*.py")
        for name in re.findall(r'effect\("([\w.]+)"\)', path.read_text())
    }
    assert named == set(EFFECTS)
    assert {POINTS[seed % len(POINTS)] for seed in range(_ROUNDS)} == set(POINTS)
