"""`onex alerts` and `onex registry ask`: what an operator sees, orders and is refused."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from click.testing import CliRunner, Result

from onex_platform.base.errors import ConfigurationError
from onex_platform.base.settings import Settings, address_variables
from onex_platform.cli.main import cli
from onex_platform.health.alert_rules import RULES, Measurement
from onex_platform.health.alerting import advance
from onex_platform.health.thresholds import reading
from onex_platform_tests.support.events import TENANT
from onex_platform_tests.support.watched_clock import MINUTE, Watched


def onex(settings: Settings, *arguments: str) -> Result:
    variables = address_variables(settings) | {"ONEX_PAGES_URL": settings.pages.url or ""}
    return CliRunner().invoke(cli, arguments, env=variables)


def answer(settings: Settings, *arguments: str) -> Any:
    done = onex(settings, "alerts", *arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_every_step_of_every_rule_is_listed() -> None:
    steps = json.loads(CliRunner().invoke(cli, ["alerts", "rules", "--json"]).stdout)
    assert [step["rule"] for step in steps] == [r.name for r in RULES.values() for _ in r.steps]
    listed = CliRunner().invoke(cli, ["alerts", "rules"]).stdout
    assert "heartbeats_per_second fell by 50 % or more within 5 min" in listed


@pytest.mark.servers
def test_an_operator_sees_an_alert_silences_it_and_lifts_the_silence(
    piped: Watched, pipeline_settings: Settings
) -> None:
    settings = pipeline_settings
    assert onex(settings, "alerts", "list").stdout == "No alert is raised.\n"
    assert onex(settings, "alerts", "audit").stdout == "Nobody has silenced anything.\n"
    assert "Nothing was measured" in onex(settings, "alerts", "numbers").stdout
    bad = reading("publish_success_percent", "events", 50)
    advance(piped.archive.platform, Measurement(datetime.now(UTC), [bad]))
    [alert] = answer(settings, "list")
    assert (alert["rule"], alert["tier"], alert["silenced"]) == (
        "failing_publishing",
        "warning",
        False,
    )
    [number] = answer(settings, "numbers")["numbers"]
    assert (number["metric"], number["level"], number["unit"]) == (bad.metric, "warning", "%")

    order = ("--for", "2h", "--reason", "deployment", "--by", "ada")
    done = onex(settings, "alerts", "silence", "failing_publishing", *order)
    assert "nobody is told of failing_publishing. Emergencies are told all the same." in done.stdout
    assert "warning (silenced)" in onex(settings, "alerts", "list", "--all").stdout
    onex(settings, "alerts", "silence", "everything", *order)  # others use this broker, too
    checked = onex(settings, "alerts", "check")
    assert checked.exit_code == 0, checked.output
    assert onex(settings, "alerts", "unsilence", "everything").exit_code == 0
    assert onex(settings, "alerts", "unsilence", "failing_publishing").exit_code == 0
    checked = onex(settings, "alerts", "check")
    assert checked.exit_code == 1, checked.output
    assert "failing_publishing" in checked.stdout
    [_, booked] = answer(settings, "audit")
    assert (booked["reason"], booked["ordered_by"]) == ("deployment", "ada")
    assert "by ada: deployment  lifted" in onex(settings, "alerts", "audit").stdout

    again = onex(settings, "alerts", "unsilence", "failing_publishing")
    assert isinstance(again.exception, ConfigurationError)
    assert again.exception.message == "'failing_publishing' is not silenced."
    assert onex(settings, "alerts", "silence", "blind", "--for", "2h").exit_code == 2


@pytest.mark.servers
def test_an_operator_asks_nodes_and_not_all_of_them_too_often(
    piped: Watched, pipeline_settings: Settings
) -> None:
    def ask(*arguments: str) -> Result:
        return onex(pipeline_settings, "registry", "ask", *arguments, "--reason", "a test")

    assert ask("worker-1", "worker-2").stdout.startswith("2 of 2 nodes are asked")
    assert ask("worker-1").stdout.startswith("0 of 1 nodes are asked")
    piped.active(1, datetime.now(UTC) + 60 * MINUTE)
    assert ask("--all").stdout == f"All nodes are asked, of: {TENANT}.\n"
    refused = ask("--all", "--tenant", TENANT)
    assert isinstance(refused.exception, ConfigurationError)
    assert "All nodes were asked less than 300 s ago" in refused.exception.message
    for arguments in ((), ("--all", "worker-1")):
        assert isinstance(ask(*arguments).exception, ConfigurationError)
    assert len(piped.waiting()) == 3
