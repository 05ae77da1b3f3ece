"""Lanes under every order of failures, kills, deposed owners and refusals, beside a plain model.

The model of a key is its list of records. Whatever happens, a handler that mended itself has seen
each list from its beginning to its end; it may have been set back, and was never let jump ahead.
"""

from __future__ import annotations

from collections import defaultdict
from random import Random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from onex_platform.delivery.entries import Key, Record, key_of
from onex_platform.delivery.work import Failure
from onex_platform_tests.support.simulated_delivery import (
    PERMANENT,
    TIERS,
    TRANSIENT,
    Broker,
    Owner,
    ask,
)

KEYS = (b"a", b"b", b"c", b"steady", None)
# By weight: mostly, things go on.
STEPS = {
    **dict.fromkeys(("produce", "take", "land", "read", "work", "commit", "pass"), 4),
    **dict.fromkeys(("kill", "depose", "refuse", "refuse first"), 1),
    **dict.fromkeys(("again", "no letters", "letters", "replay"), 2),
    "go on": 12,
}
GROUP, BYSTANDER = "failing", "bystander"


class World:
    """One partition, a group that fails, and one that does not."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.broker = Broker()
        self.lives = 0
        self.is_mended = False
        self.deposed: list[Owner] = []
        self.owner = self._begin()
        self.bystander = Owner(self.broker, BYSTANDER, lambda *_: None, "bystander")

    def _begin(self) -> Owner:
        self.lives += 1
        return Owner(self.broker, GROUP, self._handler, f"life {self.lives}")

    def _handler(self, record: Record, _now: int) -> Failure | None:
        if self.is_mended or record.key == b"steady" or self.chance.random() < 0.4:
            return None
        return PERMANENT if self.chance.random() < 0.3 else TRANSIENT

    def step(self, name: str) -> None:
        owner, chance = self.owner, self.chance
        match name:
            case "produce":
                for _ in range(chance.randint(1, 5)):
                    self.broker.produce(chance.choice(KEYS))
            case "go on":
                owner.land(chance.randint(1, 10))
                owner.read(chance.randint(1, 20))
                owner.take(chance.randint(0, 3))
                owner.work(chance.randint(0, 3))
            case "take":
                owner.take(chance.randint(1, 5))
            case "land":
                owner.land(chance.randint(1, 5))
            case "read":
                owner.read(chance.randint(1, 20))
            case "work":
                owner.work(chance.randint(1, 3))
            case "commit":
                owner.commit()
            case "pass":
                self.broker.now += chance.choice([1, TIERS[0], TIERS[1], TIERS[2], 10 * TIERS[2]])
            case "kill":
                owner.land(chance.randint(0, 3))
                self._succeed()
            case "depose":
                owner.may_commit = False
                self.deposed.append(owner)
                self._succeed()
            case "refuse":
                owner.refuse()
            case "refuse first":
                owner.refuse_first()
            case "again":
                owner.lane.write_again()
            case "no letters":
                self.broker.takes_letters = False
            case "letters":
                self.broker.takes_letters = True
            case "replay":
                self.ask_for_all()
        for ghost in self.deposed:
            ghost.take(1)
            ghost.work(1)
            ghost.land(chance.randint(0, 2))
            ghost.read(chance.randint(0, 2))
            ghost.commit()
        self.bystander.settle()

    def ask_for_all(self) -> None:
        for key, state in self.owner.lane.keys.items():
            if state.dead is not None:
                ask(self.owner, key)

    def _succeed(self) -> None:
        self.owner = self._begin()

    def mend(self) -> None:
        """Everything is well again, and every dead key is replayed."""
        self.broker.takes_letters, self.is_mended = True, True
        self.deposed.clear()
        self._succeed()
        for _ in range(3):
            self.owner.settle()
            self.ask_for_all()
            self.broker.now += 2 * TIERS[2]
        self.owner.settle()


def expected(source: list[Record]) -> dict[Key, list[int]]:
    lists: dict[Key, list[int]] = defaultdict(list)
    for record in source:
        lists[key_of(record.key, record.offset)].append(record.offset)
    return lists


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 250))
@example(672, 247)
def test_each_key_is_handled_in_order_and_to_its_end(seed: int, steps: int) -> None:
    chance = Random(seed)
    world = World(chance)
    for name in chance.choices([*STEPS], [*STEPS.values()], k=steps):
        world.step(name)
        assert b"steady" not in world.owner.lane.keys
    world.mend()
    lists = expected(world.broker.source)
    for key, offsets in lists.items():
        reached = -1
        for offset in world.broker.handled[GROUP][key]:
            index = offsets.index(offset)
            assert index <= reached + 1, (key, reached, index)
            reached = index
        assert reached == len(offsets) - 1, (key, reached)
    assert world.owner.lane.keys == {}
    world.bystander.settle()
    assert world.broker.handled[BYSTANDER] == lists
    assert world.bystander.lane.keys == {}


def test_the_committed_offset_in_rty_reaches_its_end_when_nothing_waits() -> None:
    world = World(Random(1))
    for name in ("produce", "land", "read", "take", "land", "read", "work") * 30:
        world.step(name)
    world.mend()
    assert world.broker.committed[GROUP] == (len(world.broker.source), len(world.broker.retry))
