"""Acts of a move in processes that are killed: one process that has everything imported forks a
child per act, since a program that starts anew each time would take longer than its act."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from onex_platform.base.settings import address_variables
from onex_platform_tests.support.moving_topics import MovingTopic

KILLED = 9
_PROGRAM = """
import json, os, sys
from onex_platform.base import faults
from onex_platform.base.settings import load_settings
from onex_platform.engines.postgres.database import open_database
from onex_platform.migration.dual_publisher import open_dual_publisher
from onex_platform.topics.catalogue import Catalogue
from onex_platform.topics.contract import TopicContract
from onex_platform.topics.migration_intent import MigrationIntent
from onex_platform_tests.support.moving_topics import FORCED, MovingTopic
from dataclasses import replace

def act(order):
    if order["moment"]:
        faults.arm(order["moment"])
    contracts = [TopicContract.model_validate(c) for c in order["contracts"]]
    intents = {name: MigrationIntent.model_validate(i) for name, i in order["intents"].items()}
    catalogue, source = Catalogue(contracts, intents), order["source"]
    settings = load_settings()
    with open_database(settings) as database:
        moving = MovingTopic(settings, database, catalogue, source, order["target"])
        match order["act"]:
            case "advance":
                moving.advance(replace(FORCED, deletes=source))
            case "rollback":
                moving.rollback()
            case "mirror":
                moving.migrator.mirror(source)
            case "handover":
                moving.migrator.handover(source, moving.groups[0], back=order["back"])
            case "publish":
                with open_dual_publisher(settings, catalogue, source) as publisher:
                    publisher.publish(order["event"].encode(), key="dual-0")

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            act(json.loads(line))
            code = 0
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(child, 0)
    killed = os.WIFSIGNALED(status)
    print(os.WTERMSIG(status) if killed else os.WEXITSTATUS(status), flush=True)
"""


class Killed:
    """Does acts of a move; each may end at a moment."""

    def __init__(self, moving: MovingTopic, process: subprocess.Popen[str]) -> None:
        self._moving = moving
        self._process = process

    def do(self, act: str, moment: str | None = None, **more: Any) -> int:
        """The signal that ended it, 0 if it came to its end, 1 if it failed."""
        moving = self._moving
        order = {
            "act": act,
            "moment": moment,
            "source": moving.source,
            "target": moving.target,
            "contracts": [
                contract.model_dump(mode="json", exclude_none=True) for contract in moving.catalogue
            ],
            "intents": {
                name: intent.model_dump(mode="json", exclude_none=True)
                for name, intent in moving.catalogue.intents.items()
            },
            **more,
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def through(self, act: str, *points: str, **more: Any) -> None:
        """Do the act, killed before and after each point in turn, then to its end; behind the last
        point of a change nothing is left to do."""
        for point in points:
            assert self.do(act, f"before:{point}", **more) == KILLED, point
            assert self.do(act, f"after:{point}", **more) == KILLED, point
        if points[-1] != "migration.enter_phase":
            assert self.do(act, **more) == 0


@contextmanager
def killed_acts(moving: MovingTopic) -> Iterator[Killed]:
    program = [sys.executable, "-c", _PROGRAM]
    environment = {
        "PATH": "",
        "PYTHONPATH": ":".join(sys.path),
        **address_variables(moving.settings),
    }
    with subprocess.Popen(
        program, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Killed(moving, process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()
