"""`onex topics plan | apply | drift | review | subjects | password | access`, on real servers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pydantic import SecretStr

from onex_platform.base.errors import ConfigurationError
from onex_platform.base.settings import SchemasSettings, Settings, address_variables
from onex_platform.cli.topics import command
from onex_platform.engines.kafka.access import Right, grant
from onex_platform.engines.kafka.clients import open_admin
from onex_platform.engines.kafka.topic_admin import topic_names
from onex_platform.governance.governed import Governed
from onex_platform.topics.catalogue import load_whole_catalogue

_NEEDLESS = Right("User:onex-node", "topic", "prefixed", "onex.node.", "delete")


def _onex(*arguments: str, given: str | None = None) -> Result:
    return CliRunner().invoke(command, arguments, input=given)


@pytest.fixture
def cluster(
    secured: Settings, schemas: SchemasSettings, monkeypatch: pytest.MonkeyPatch
) -> Settings:
    """The secured broker and a registry, as the settings of the command."""
    settings = secured.model_copy(update={"schemas": schemas})
    for name, value in address_variables(settings).items():
        monkeypatch.setenv(name, value)
    return settings


@pytest.mark.servers
def test_a_plan_in_a_file_is_applied_and_leaves_no_drift(cluster: Settings, tmp_path: Path) -> None:
    file = str(tmp_path / "plan.json")
    assert _onex("plan", "--out", file).exit_code == 0
    first = _onex("apply", file, "--allow-shorter-retention", "--allow-revoke")
    assert first.stdout == f"{len(json.loads(Path(file).read_text())['steps'])} steps taken.\n"
    calm = _onex("drift", "--json")
    assert (calm.exit_code, json.loads(calm.stdout)["steps"]) == (0, [])

    with open_admin(cluster) as admin:
        grant(admin, [_NEEDLESS])
    drifted = _onex("drift")
    assert drifted.exit_code == 1
    told = "revoke  User:onex-node  delete topic prefixed onex.node.  (needs --allow-revoke)"
    assert told in drifted.stdout
    _onex("plan", "--out", file)
    refused = _onex("apply", file)
    assert isinstance(refused.exception, ConfigurationError)
    assert "--allow-revoke" in (refused.exception.hint or "")
    assert _onex("apply", file, "--allow-revoke").stdout == "1 steps taken.\n"

    pins = json.loads(_onex("subjects", "--json").stdout)
    wanted = Governed.of(cluster, load_whole_catalogue()).wanted
    assert [pin["subject"] for pin in pins] == sorted(wanted.subjects or ())
    assert all(pin["version"] >= 1 for pin in pins)


@pytest.mark.servers
def test_a_file_that_is_no_plan_is_named(cluster: Settings, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text('{"steps": 1}')
    refused = _onex("apply", str(file))
    assert isinstance(refused.exception, ConfigurationError)
    assert f"{file} is no plan" in refused.exception.message


@pytest.mark.servers
def test_an_account_of_the_policy_logs_in_with_the_password_that_it_is_given(
    cluster: Settings,
) -> None:
    done = _onex("password", "onex-node", "--stdin", given="of-a-node\n")
    assert done.stdout == "onex-node has a new password.\n"
    login = {"sasl_username": "onex-node", "sasl_password": SecretStr("of-a-node")}
    kafka = cluster.kafka.model_copy(update=login)
    with open_admin(cluster.model_copy(update={"kafka": kafka})) as admin:
        topic_names(admin)
    stranger = _onex("password", "onex-nod", "--stdin", given="x\n")
    assert isinstance(stranger.exception, ConfigurationError)
    assert "'onex-nod' is not in contracts/policy/access.yaml" in stranger.exception.message
    empty = _onex("password", "onex-node", "--stdin", given="\n")
    assert isinstance(empty.exception, ConfigurationError)


@pytest.mark.servers
def test_the_review_asks_and_counts(cluster: Settings) -> None:
    assert _onex("review").stdout.endswith(" to decide.\n")
    assert isinstance(json.loads(_onex("review", "--json").stdout), list)


def test_access_names_the_accounts_that_there_are() -> None:
    assert "| topic | prefixed | `onex.node.` |" in _onex("access", "onex-node").stdout
    refused = _onex("access", "nobody")
    assert isinstance(refused.exception, ConfigurationError)
    assert "onex-platform" in (refused.exception.hint or "")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("prod.omnabase.kb.qrs.search-requests.v1", "did you mean 'omnibase'?"),
        ("prod.omnibase.kbb.qrs.search-requests.v1", "did you mean 'kb'?"),
        ("prod.omnibase.kb.qrz.search-requests.v1", "did you mean 'qrs'?"),
        ("prod.omnibase.kb.qrs.search-request.v1", "Did you mean kb.qrs.search-requests.v1?"),
        ("omnabase.onex.node.heartbeat.published.v1", "did you mean 'omnibase'?"),
        ("onex.node.heartbeat.publishd.v1", "Did you mean onex.node.heartbeat.published.v1?"),
    ],
)
def test_a_misspelt_name_is_refused_with_the_nearest_right_one(name: str, told: str) -> None:
    refused = _onex("name", name).exception
    assert isinstance(refused, ConfigurationError)
    assert told in f"{refused.message} {refused.hint}"
