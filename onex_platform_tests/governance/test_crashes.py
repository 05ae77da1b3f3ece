"""Killed before and after every kind of step, or run twice at once: the next plan is right."""

from __future__ import annotations

import signal
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest
from pydantic import SecretStr

from onex_platform.base import faults
from onex_platform.base.errors import ConfigurationError
from onex_platform.base.settings import address_variables
from onex_platform.engines.kafka.clients import open_admin
from onex_platform.engines.kafka.topic_admin import topic_names
from onex_platform.governance.cluster import apply, plan, set_account_password
from onex_platform.governance.cluster_plan import EnumDanger, Plan, Step
from onex_platform.governance.governed import Governed
from onex_platform_tests.support.forked_programs import run_program
from onex_platform_tests.support.governed_clusters import ALL_DANGERS, FEW_TOPICS, settle, spoil

pytestmark = [pytest.mark.servers, pytest.mark.long]

_PASSWORD = "governance.set_password"
_PROGRAM = """
import sys
from pathlib import Path
from onex_platform.base import faults
from onex_platform.base.settings import load_settings
from onex_platform.governance.cluster import apply
from onex_platform.governance.cluster_plan import EnumDanger, Plan
from onex_platform.governance.governed import Governed
from onex_platform.topics.catalogue import Catalogue, load_whole_catalogue

faults.arm(sys.argv[1])
agreed = Plan.model_validate_json(Path(sys.argv[2]).read_bytes())
whole = load_whole_catalogue()
governed = Governed.of(load_settings(), Catalogue(whole[name] for name in sys.argv[3:]))
apply(governed, agreed, allowed=frozenset(EnumDanger))
"""


def _with_a_deletion(agreed: Plan, topic: str) -> Plan:
    """The plan, with a topic to delete in the end; the next plan wants it back."""
    deletion = Step(kind="delete-topic", name=topic, danger=EnumDanger.DELETION)
    return agreed.model_copy(update={"steps": (*agreed.steps, deletion)})


def _steps(found: Plan, kinds: Collection[str] | None = None) -> set[tuple[str, str]]:
    return {(s.kind, s.name) for s in found.steps if kinds is None or s.kind in kinds}


def _undone(agreed: Plan, kind: str, when: str) -> set[tuple[str, str]]:
    """The steps from the killed one on; topics are created first, and deleted ones come back."""
    order = [
        (s.kind, s.name) for s in agreed.steps if s.kind not in ("create-topic", "delete-topic")
    ]
    if kind == "delete-topic":
        return set()
    if kind == "create-topic":
        return {*order, *(_steps(agreed, {kind}) if when == "before" else ())}
    killed = next(place for place, step in enumerate(order) if step[0] == kind)
    return set(order[killed + (when == "after") :])


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
        ("set-mode", "governance.set_mode"),
        ("register-subject", "governance.register_subject"),
    ],
)
def test_a_killed_apply_leaves_a_cluster_for_which_the_next_plan_is_right(
    governed: Governed, tmp_path: Path, kind: str, point: str, when: str
) -> None:
    settle(governed)
    spoil(governed)
    before = _with_a_deletion(plan(governed), max(governed.topics))
    assert kind in {step.kind for step in before.steps}
    file = tmp_path / "plan.json"
    file.write_text(before.model_dump_json(), encoding="utf-8")
    variables = address_variables(governed.settings)
    ended = run_program(_PROGRAM, f"{when}:{point}", str(file), *FEW_TOPICS, variables=variables)
    assert ended == -signal.SIGKILL
    rest = plan(governed)
    # What was not done is planned again. Nothing else is, but the topic that is wanted back, and
    # the mode of a subject that has no schema yet: a registry does not show it.
    again = {("create-topic", max(governed.topics)), *_steps(before, {"set-mode"})}
    undone = _undone(before, kind, when)
    assert undone <= _steps(rest) <= undone | again
    apply(governed, rest, allowed=ALL_DANGERS)
    assert plan(governed).is_empty


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_password_that_was_given_twice_lets_its_account_in(governed: Governed, when: str) -> None:
    account, password = "onex-observability", f"a-password-{when}"

    def stop() -> NoReturn:
        raise InterruptedError

    faults.arm(f"{when}:{_PASSWORD}", stop)
    with pytest.raises(InterruptedError):
        set_account_password(governed, account, password)
    set_account_password(governed, account, password)
    login = {"sasl_username": account, "sasl_password": SecretStr(password)}
    kafka = governed.settings.kafka.model_copy(update=login)
    with open_admin(governed.settings.model_copy(update={"kafka": kafka})) as admin:
        assert topic_names(admin)


def test_two_at_once_end_in_a_cluster_that_agrees(governed: Governed) -> None:
    settle(governed)
    spoil(governed)
    agreed = plan(governed)

    def run() -> bool:
        try:
            apply(replace(governed), agreed, allowed=ALL_DANGERS)
        except ConfigurationError as error:
            assert "not as the plan saw it" in error.message
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(run) for _ in range(2)]
    assert any(done.result() for done in runs)
    apply(governed, plan(governed), allowed=ALL_DANGERS)
    assert plan(governed).is_empty
