"""The secured broker in containers is the embedded one's equal, and everybody has a login there."""

from __future__ import annotations

import re
from typing import Any

import click
import pytest

from onex_platform.base.settings import KafkaSettings
from onex_platform.cli.main import cli
from onex_platform.stack.servers.kafka_server import SECURED
from onex_platform.topics.policy import load_policy

Services = dict[str, dict[str, Any]]

_PLATFORM = "onex-platform"


@pytest.fixture(scope="module")
def properties(services: Services, overlay: Services) -> dict[str, str]:
    """The broker's properties, as the image makes them of the variables."""
    variables = services["kafka"]["environment"] | overlay["kafka"]["environment"]
    return {
        name.removeprefix("KAFKA_")
        .lower()
        .replace("_", ".")
        .replace("...", "-")
        .replace("..", "_"): value
        for name, value in variables.items()
    }


def test_it_has_the_embedded_broker_s_authoriser_and_accounts(properties: dict[str, str]) -> None:
    for name in ("authorizer.class.name", "super.users", "allow.everyone.if.no.acl.found"):
        assert properties[name] == SECURED[name]
    assert SECURED["sasl.enabled.mechanisms"] in properties["sasl.enabled.mechanisms"].split(",")


def test_no_listener_lets_anybody_in_without_a_name(properties: dict[str, str]) -> None:
    protocols = dict(
        pair.split(":") for pair in properties["listener.security.protocol.map"].split(",")
    )
    listeners = re.findall(r"(\w+)://", properties["listeners"])
    assert listeners == ["PLAINTEXT", "CONTROLLER"]
    assert {protocols[name] for name in listeners} == {"SASL_PLAINTEXT"}
    for listener in listeners:
        own = f"listener.name.{listener.lower()}"
        mechanisms = properties.get(
            f"{own}.sasl.enabled.mechanisms", properties["sasl.enabled.mechanisms"]
        )
        for mechanism in mechanisms.split(","):
            login = properties[f"{own}.{mechanism.lower()}.sasl.jaas.config"]
            assert login.endswith(";")
            assert "\n" not in login


def test_whoever_talks_to_kafka_has_a_login_that_the_settings_accept(
    services: Services, overlay: Services
) -> None:
    clients = {
        name
        for name, service in services.items()
        if "ONEX_KAFKA_BOOTSTRAP_SERVERS" in service.get("environment", {})
    }
    assert clients == overlay.keys() - {"kafka"}
    for name in clients:
        variables = overlay[name]["environment"]
        login = {
            variable.removeprefix("ONEX_KAFKA_").lower(): value
            for variable, value in variables.items()
            if variable.startswith("ONEX_KAFKA_")
        }
        kafka = KafkaSettings.model_validate(login)
        assert kafka.sasl_username == ("admin" if name == "prepare" else _PLATFORM), name


def test_the_platform_s_account_is_in_the_policy_and_prepared_with_commands_that_exist(
    overlay: Services,
) -> None:
    assert _PLATFORM in {account.name for account in load_policy().access.accounts}
    script = overlay["prepare"]["command"][-1]
    called = re.findall(r"onex (\w+) (\w+)", script)
    assert called == [("db", "migrate"), *(("topics", v) for v in ("password", "plan", "apply"))]
    for noun, verb in called:
        context = click.Context(cli)
        group = cli.get_command(context, noun)
        assert isinstance(group, click.Group)
        assert group.get_command(context, verb) is not None, verb


def test_its_health_needs_no_password(overlay: Services, properties: dict[str, str]) -> None:
    port = properties["advertised.listeners"].rpartition(":")[2]
    assert overlay["kafka"]["healthcheck"]["test"][-1].endswith(f"/dev/tcp/localhost/{port}")
