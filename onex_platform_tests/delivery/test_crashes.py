"""Killed before and after every effect: nothing is lost, and each key is handled in order.

At worst a record is handled again, and then so is everything behind it.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from onex_platform.base import faults
from onex_platform.base.settings import Settings, address_variables
from onex_platform.delivery.config import DeliveryConfig
from onex_platform.delivery.consumer import wall_clock
from onex_platform.delivery.entries import EnumEntry
from onex_platform.delivery.errors import PermanentError
from onex_platform.delivery.letters import parked_keys, request
from onex_platform_tests.support.delivery_runs import Diary, member, new_config, send

pytestmark = pytest.mark.servers

KEYS = ["a", "b"] * 10
# A member that comes back under this name need not wait until the killed one is given up.
SAME = {"group.instance.id": "one"}
# Fails for a key for good, until it is mended; notes what it handled in a file.
_PROGRAM = """
import sys
from pathlib import Path
from onex_platform.base import faults
from onex_platform.base.settings import load_settings
from onex_platform.delivery.config import DeliveryConfig, Limits
from onex_platform.delivery.consumer import RetryingConsumer
from onex_platform.delivery.errors import PermanentError

moment, source, retry, dead_letters, group, diary, is_mended = sys.argv[1:]
notes = Path(diary).open("a", buffering=1)

def handle(delivery):
    if delivery.key == b"a" and not int(is_mended):
        raise PermanentError("poison")
    print(delivery.key.decode(), delivery.value.decode(), file=notes)

config = DeliveryConfig(
    source, retry, dead_letters, group, Limits((50,), refusal_pause=200), commit_seconds=0.05
)
faults.arm(moment)
with RetryingConsumer(load_settings(), config, handle, **{"group.instance.id": "one"}) as consumer:
    while True:
        consumer.step(0.02)
"""


def _killed_at(
    moment: str, settings: Settings, config: DeliveryConfig, diary: Path, is_mended: bool
) -> None:
    names = (config.source, config.retry, config.dead_letters, config.group)
    child = subprocess.run(
        [sys.executable, "-c", _PROGRAM, moment, *names, str(diary), str(int(is_mended))],
        env={"PATH": "", "PYTHONPATH": ":".join(sys.path), **address_variables(settings)},
        check=False,
        capture_output=True,
        timeout=60,
    )
    assert child.returncode == -signal.SIGKILL, child.stderr.decode()


def _ask_for_replay(settings: Settings, config: DeliveryConfig) -> int:
    return request(settings, config, EnumEntry.REPLAY, parked_keys(settings, config, wall_clock()))


def _require_all_in_order(diary: Path, seen: dict[str, list[int]]) -> None:
    handled: dict[str, list[int]] = {"a": [], "b": []}
    if diary.exists():
        for line in diary.read_text().splitlines():
            key, number = line.split()
            handled[key].append(int(number))
    for key, numbers in handled.items():
        wanted = [n for n, k in enumerate(KEYS) if k == key]
        reached = -1
        for number in (*numbers, *seen[key]):
            index = wanted.index(number)
            assert index <= reached + 1
            reached = index
        assert reached == len(wanted) - 1


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("point", ["delivery.append", "delivery.bury", "delivery.commit"])
def test_a_killed_consumer_loses_nothing(
    kafka_settings: Settings, tmp_path: Path, point: str, when: str
) -> None:
    config = replace(new_config(kafka_settings, partitions=1, tiers=(50,)), commit_seconds=0.05)
    send(kafka_settings, config.source, KEYS)
    _killed_at(f"{when}:{point}", kafka_settings, config, tmp_path / "diary", is_mended=False)
    diary = Diary()
    with member(kafka_settings, config, diary, **SAME) as running:
        running.work_until(lambda: diary.seen["a"][-1:] == [18] and diary.seen["b"][-1:] == [19])
        _require_all_in_order(tmp_path / "diary", diary.seen)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_killed_replay_is_taken_up_by_the_next_owner(
    kafka_settings: Settings, tmp_path: Path, when: str
) -> None:
    config = new_config(kafka_settings, partitions=1)
    send(kafka_settings, config.source, KEYS)
    _killed_at("after:delivery.bury", kafka_settings, config, tmp_path / "diary", is_mended=False)
    with member(kafka_settings, config, _poisoned(), **SAME) as running:
        running.work_until(lambda: _ask_for_replay(kafka_settings, config) == 1)
    _killed_at(
        f"{when}:delivery.revive", kafka_settings, config, tmp_path / "diary", is_mended=True
    )
    diary = Diary()
    with member(kafka_settings, config, diary, **SAME) as running:
        running.work_until(lambda: diary.seen["a"][-1:] == [18])
    assert diary.seen["a"] == [n for n, key in enumerate(KEYS) if key == "a"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_killed_request_is_made_or_not_and_may_be_repeated(
    kafka_settings: Settings, when: str
) -> None:
    class KilledError(Exception):
        pass

    def die() -> None:
        raise KilledError

    config = new_config(kafka_settings, partitions=1)
    send(kafka_settings, config.source, KEYS)
    with member(kafka_settings, config, _poisoned(), **SAME) as running:
        running.work_until(
            lambda: any(k.dead for k in parked_keys(kafka_settings, config, wall_clock()))
        )
    faults.arm(f"{when}:delivery.request", die)
    with pytest.raises(KilledError):
        _ask_for_replay(kafka_settings, config)
    _ask_for_replay(kafka_settings, config)
    diary = Diary()
    with member(kafka_settings, config, diary, **SAME) as running:
        running.work_until(lambda: diary.seen["a"][-1:] == [18])
    assert diary.seen["a"] == [n for n, key in enumerate(KEYS) if key == "a"]


def _poisoned() -> Diary:
    return Diary(lambda delivery: PermanentError("poison") if delivery.key == b"a" else None)
