"""`onex migrate`: it shows every condition, and takes orders to go on and back."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from onex_platform.base.errors import ConfigurationError
from onex_platform.base.settings import Settings, address_variables
from onex_platform.cli.main import cli
from onex_platform.governance.provision import create_topics
from onex_platform.topics.catalogue import load_catalogue

pytestmark = pytest.mark.servers

REQUESTS = "node.request_introspection"


def onex(settings: Settings, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["migrate", *arguments], env=address_variables(settings))


def test_an_operator_sees_conditions_goes_on_and_back(store_settings: Settings) -> None:
    create_topics(store_settings, load_catalogue())
    listed = json.loads(onex(store_settings, "status", "--json").stdout)
    assert {move["source"] for move in listed} == load_catalogue().intents.keys()
    assert {move["phase"] for move in listed} == {"assess"}

    assert onex(store_settings, "advance", REQUESTS).stdout == f"{REQUESTS} is in dual now.\n"
    shown = onex(store_settings, "status", REQUESTS).stdout
    assert f"{REQUESTS} → {load_catalogue().intents[REQUESTS].to}: dual since" in shown
    assert "unmet  time in dual: " in shown
    assert ", needed 604800 s" in shown
    early = onex(store_settings, "advance", REQUESTS)
    assert isinstance(early.exception, ConfigurationError)
    assert "can't leave dual yet: unmet  time in dual: " in early.exception.message
    assert onex(store_settings, "mirror", REQUESTS, "--once").stdout.startswith("0 copied")

    silent = onex(store_settings, "rollback", REQUESTS)
    assert "Missing option '--reason'" in silent.output
    back = onex(store_settings, "rollback", REQUESTS, "--reason", "too early")
    assert back.stdout == f"{REQUESTS} is in assess now.\n"


def test_orders_that_make_no_sense_are_answered(store_settings: Settings) -> None:
    create_topics(store_settings, load_catalogue())
    for arguments, sentence in (
        (("status", "node.unknown"), "'node.unknown' moves nowhere"),
        (("advance", REQUESTS, "--force"), "needs a reason"),
        (("handover", REQUESTS, "readers"), "in the phase move"),
    ):
        refused = onex(store_settings, *arguments)
        assert isinstance(refused.exception, ConfigurationError)
        assert sentence in refused.exception.message
