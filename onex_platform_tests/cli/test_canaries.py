"""`onex canaries`: a look that changes nothing, one that goes on, and an exit code for scripts."""

from __future__ import annotations

import json
from uuid import uuid4

import pytest
from click.testing import CliRunner, Result

from onex_platform.base.settings import Settings, address_variables
from onex_platform.cli.main import cli
from onex_platform.domain.events import EnumEventKind
from onex_platform.engines.kafka.clients import open_admin
from onex_platform.engines.kafka.group_offsets import commit_for, end_offsets
from onex_platform.governance.provision import create_topics
from onex_platform.topics.catalogue import load_catalogue

pytestmark = pytest.mark.servers

BREAKERS = load_catalogue().for_kind(EnumEventKind.BREAKER_STATE_CHANGED).topic


def onex(settings: Settings, *arguments: str) -> Result:
    variables = address_variables(settings) | {"ONEX_CANARY_PERIOD_SECONDS": "1"}
    return CliRunner().invoke(cli, ["canaries", *arguments], env=variables)


def test_an_operator_sees_how_canaries_stand_and_lets_them_go_on(
    store_settings: Settings,
) -> None:
    create_topics(store_settings, load_catalogue())
    group = f"observability-{uuid4()}"
    with open_admin(store_settings) as admin:
        commit_for(admin, group, end_offsets(admin, BREAKERS))
    fresh = onex(store_settings, "status")
    assert fresh.exit_code == 0
    assert "node    no life has begun" in fresh.stdout
    assert f"group   {group} reads in {BREAKERS}" in fresh.stdout

    begun = json.loads(onex(store_settings, "once", "--json").stdout)
    assert begun["well"]
    assert begun["life"]["stopped_at"] is None
    assert group in {found["group"] for found in begun["groups"] if found["waiting_since"]}

    shown = onex(store_settings, "follow", "--seconds", "2.5").stdout
    assert "stopped at ack_requested" in shown
    assert f"TROUBLE Group {group} has not read {BREAKERS}" in shown
    assert onex(store_settings, "status").exit_code == 1
    assert onex(store_settings, "forget", group).stdout == f"{group}: forgotten in 1 topics.\n"
