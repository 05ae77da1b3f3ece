"""One poisoned key among many: the others finish, and mended, all is as if nothing had been.

    python -m onex_platform_tests.campaigns.poisoned_key --records 100000 --keys 1000
    python -m onex_platform_tests.campaigns.poisoned_key --records 100000 --keys 1000 --instances 2

With more than one instance, one of them leaves and comes back every second. The handler's state is
the chain of hashes of each key's records, in the order in which they came: whatever is lost,
doubled for good or out of order shows. A record that comes again sets its key back, as a handler
does that keeps the source's offset with its state.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Lock, Thread

from onex_platform import stack
from onex_platform.base.settings import Settings
from onex_platform.delivery.config import DeliveryConfig
from onex_platform.delivery.consumer import RetryingConsumer, wall_clock
from onex_platform.delivery.delivered import Delivery
from onex_platform.delivery.entries import EnumEntry
from onex_platform.delivery.errors import PermanentError
from onex_platform.delivery.letters import parked_keys, request
from onex_platform_tests.support.delivery_runs import new_config, send
from onex_platform_tests.support.stacks import embedded_settings
from onex_platform_tests.support.waiting import eventually

POISONED = "key-7"
_LONGEST_SECONDS = 900


class Chains:
    """The handler: of each key, the offsets it has seen and the hash of its chain at each."""

    def __init__(self) -> None:
        self.is_mended = False
        self._chains: dict[str, list[tuple[int, str]]] = {}
        self._lock = Lock()

    def __call__(self, delivery: Delivery) -> None:
        key, offset = (delivery.key or b"").decode(), delivery.record.offset
        if key == POISONED and not self.is_mended:
            raise PermanentError("poison")
        with self._lock:
            chain = self._chains.setdefault(key, [])
            while chain and chain[-1][0] >= offset:
                chain.pop()
            before = chain[-1][1] if chain else ""
            text = f"{before}/{(delivery.value or b'').decode()}"
            chain.append((offset, hashlib.sha256(text.encode()).hexdigest()))

    def state(self) -> dict[str, tuple[int, str]]:
        """The length of each chain, and its last hash."""
        with self._lock:
            return {key: (len(chain), chain[-1][1]) for key, chain in self._chains.items()}

    def handled(self) -> int:
        with self._lock:
            return sum(map(len, self._chains.values()))


def undisturbed(keys: list[str]) -> dict[str, tuple[int, str]]:
    chains: dict[str, tuple[int, str]] = {}
    for number, key in enumerate(keys):
        length, before = chains.get(key, (0, ""))
        chains[key] = length + 1, hashlib.sha256(f"{before}/{number}".encode()).hexdigest()
    return chains


def run(
    settings: Settings, records: int, keys: int, instances: int, away_seconds: float = 1.0
) -> Iterator[str]:
    """Say what has been reached; raises if something is not as it must be."""
    config = new_config(settings, partitions=3)
    sent = [f"key-{number % keys}" for number in range(records)]
    send(settings, config.source, sent)
    wanted, handler = undisturbed(sent), Chains()
    poisoned = wanted[POISONED][0]
    with ExitStack() as members:
        for number in range(instances):
            members.enter_context(_Member(settings, config, handler, number, away_seconds))
        _await(lambda: handler.handled() >= records - poisoned, "the others to finish")
        assert handler.state() == {key: end for key, end in wanted.items() if key != POISONED}
        yield f"{keys - 1} keys finished while {POISONED} waited"
        _await(lambda: _is_dead(settings, config), f"{POISONED} to be a dead letter")
        handler.is_mended = True
        found = parked_keys(settings, config, wall_clock())
        assert request(settings, config, EnumEntry.REPLAY, found) == 1
        _await(lambda: handler.state() == wanted, "the replay to finish")
        yield f"mended and replayed, all {keys} keys are as in an undisturbed run"


class _Member:
    """A consumer in a thread of its own; all but the first leave and come back for ever."""

    def __init__(
        self,
        settings: Settings,
        config: DeliveryConfig,
        handler: Chains,
        number: int,
        away_seconds: float,
    ) -> None:
        self._open: Callable[[], RetryingConsumer] = lambda: RetryingConsumer(
            settings, config, handler
        )
        self._stays = number == 0
        self._seconds = away_seconds
        self._ended = Event()
        self._thread = Thread(target=self._work, name=f"member {number}")

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._ended.is_set():
            with self._open() as consumer:
                leaves = time.monotonic() + self._seconds
                while not self._ended.is_set() and (self._stays or time.monotonic() < leaves):
                    consumer.step(0.05)


def _is_dead(settings: Settings, config: DeliveryConfig) -> bool:
    found = parked_keys(settings, config, wall_clock())
    return [(parked.name, parked.waiting) for parked in found if parked.dead] == [(POISONED, 0)]


def _await(holds: Callable[[], bool], what: str) -> None:
    assert eventually(holds, _LONGEST_SECONDS), f"waited in vain for {what}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--instances", type=int, default=1)
    chosen = parser.parse_args()
    with (
        TemporaryDirectory() as folder,
        stack.running(embedded_settings(Path(folder)), services=["kafka"]) as settings,
    ):
        for line in run(settings, chosen.records, chosen.keys, chosen.instances):
            sys.stdout.write(f"{line}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
