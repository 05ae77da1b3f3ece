"""Killed before and after every kind of step, or run twice at once: the next plan is right."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from onex_platform.base.errors import ConfigurationError
from onex_platform.base.settings import Settings, address_variables
from onex_platform.engines.kafka.access import Right, grant, revoke
from onex_platform.engines.kafka.clients import open_admin
from onex_platform.engines.kafka.quotas import set_quotas
from onex_platform.engines.kafka.topic_admin import alter, delete
from onex_platform.governance.cluster import Governed, apply, plan
from onex_platform.governance.cluster_plan import EnumDanger, Plan, Step
from onex_platform_tests.support.forked_programs import run_program

pytestmark = pytest.mark.servers

_ALL = frozenset(EnumDanger)
_PROGRAM = """
import sys
from pathlib import Path
from onex_platform.base import faults
from onex_platform.base.settings import load_settings
from onex_platform.governance.cluster import Governed, apply
from onex_platform.governance.cluster_plan import EnumDanger, Plan

faults.arm(sys.argv[1])
agreed = Plan.model_validate_json(Path(sys.argv[2]).read_bytes())
apply(Governed.of(load_settings()), agreed, allowed=frozenset(EnumDanger))
"""


def _spoil(governed: Governed) -> None:
    """Leave something to do for every kind of step that needs no registry."""
    first, second, *_ = sorted(governed.wanted.topics)
    with open_admin(governed.settings) as admin:
        alter(admin, first, {"retention.ms": "1000"})
        delete(admin, second)
        revoke(admin, [min(governed.wanted.rights or ())])
        grant(admin, [Right("User:onex-node", "topic", "prefixed", "onex.node.", "delete")])
    set_quotas(governed.settings, "onex-node", {"producer_byte_rate": 1.0})


def _with_a_deletion(agreed: Plan, topic: str) -> Plan:
    """The plan, with a topic to delete in the end; the next plan wants it back."""
    deletion = Step(kind="delete-topic", name=topic, danger=EnumDanger.DELETION)
    return agreed.model_copy(update={"steps": (*agreed.steps, deletion)})


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("kind", "point"),
    [
        ("create-topic", "governance.create_topic"),
        ("set-topic", "governance.set_topic"),
        ("delete-topic", "governance.delete_topic"),
        ("grant", "governance.grant"),
        ("revoke", "governance.revoke"),
        ("set-quota", "governance.set_quota"),
    ],
)
def test_a_killed_apply_leaves_a_cluster_for_which_the_next_plan_is_right(
    secured: Settings, tmp_path: Path, kind: str, point: str, when: str
) -> None:
    governed = Governed.of(secured)
    apply(governed, plan(governed), allowed=_ALL)
    _spoil(governed)
    before = _with_a_deletion(plan(governed), max(governed.wanted.topics))
    assert kind in {step.kind for step in before.steps}
    file = tmp_path / "plan.json"
    file.write_text(before.model_dump_json(), encoding="utf-8")
    variables = address_variables(secured)
    ended = run_program(_PROGRAM, f"{when}:{point}", str(file), variables=variables)
    assert ended == -signal.SIGKILL
    rest = plan(governed)
    assert len(rest.steps) <= len(before.steps)
    apply(governed, rest, allowed=_ALL)
    assert plan(governed).is_empty


def test_two_at_once_end_in_a_cluster_that_agrees(secured: Settings) -> None:
    governed = Governed.of(secured)
    apply(governed, plan(governed), allowed=_ALL)
    _spoil(governed)
    agreed = plan(governed)

    def run() -> bool:
        try:
            apply(replace(governed), agreed, allowed=_ALL)
        except ConfigurationError as error:
            assert "not as the plan saw it" in error.message
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(run) for _ in range(2)]
    assert any(done.result() for done in runs)
    apply(governed, plan(governed), allowed=_ALL)
    assert plan(governed).is_empty
