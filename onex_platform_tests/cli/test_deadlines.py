"""`onex deadlines`: it shows who is overdue or held, and takes an operator's orders."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner, Result

from onex_platform.base.errors import ConfigurationError
from onex_platform.base.settings import Settings, address_variables
from onex_platform.cli.main import cli
from onex_platform.deadlines.scan_state import overrides
from onex_platform_tests.support.events import TENANT, at
from onex_platform_tests.support.watched_clock import MINUTE, Watched

pytestmark = pytest.mark.servers


def onex(settings: Settings, *arguments: str) -> Result:
    variables = address_variables(settings) | {"ONEX_PAGES_URL": settings.pages.url or ""}
    return CliRunner().invoke(cli, ["deadlines", *arguments], env=variables)


def test_an_operator_sees_a_hold_orders_its_end_and_finds_the_order_again(
    piped: Watched, pipeline_settings: Settings
) -> None:
    now = datetime.now(UTC)
    piped.active(100, now - timedelta(seconds=5))
    piped.watched_at(now)
    piped.folded_to(now)
    tried = json.loads(onex(pipeline_settings, "scan", "--dry-run", "--json").stdout)
    assert (tried["liveness_expired"], tried["held"]) == (15, 85)
    assert onex(pipeline_settings, "holds").stdout == "Nothing is held.\n"
    assert onex(pipeline_settings, "audit").stdout == "Nobody has ordered an override.\n"

    done = onex(pipeline_settings, "scan")
    assert "liveness expired              15" in done.stdout
    status = onex(pipeline_settings, "status")
    assert status.exit_code == 0, status.output
    assert status.stdout.startswith(f"85 overdue nodes are held back, of {TENANT}.")
    assert "expiry limit 15" in status.stdout
    [hold] = json.loads(onex(pipeline_settings, "holds", "--json").stdout)
    assert (hold["tenant"], hold["held"]) == (TENANT, 85)

    order = ("--tenant", TENANT, "--reason", "data centre closed", "--by", "ada", "--for", "5m")
    ordered = onex(pipeline_settings, "override", *order)
    assert f"every overdue node of {TENANT} may expire" in ordered.stdout
    assert "overrides" in onex(pipeline_settings, "status").stdout
    assert "liveness expired              85" in onex(pipeline_settings, "scan").stdout
    assert "ending override" in onex(pipeline_settings, "holds", "--all").stdout
    audit = onex(pipeline_settings, "audit").stdout
    assert "reason data centre closed  ordered by ada" in audit
    assert onex(pipeline_settings, "override", "--tenant", TENANT).exit_code == 2


def test_the_status_of_forgotten_rows_is_an_exit_code(piped: Watched) -> None:
    now = datetime.now(UTC)
    piped.active(1, now - 2 * MINUTE)
    piped.watched_at(now)
    piped.folded_to(now)
    assert onex(piped.archive.settings, "status").exit_code == 1
    found = json.loads(onex(piped.archive.settings, "status", "--json").stdout)
    assert found["overdue_without_fact"] == 1
    assert [name for name in found if not name.isidentifier()] == []


def test_an_order_for_a_tenant_of_whom_nothing_can_expire_is_refused(piped: Watched) -> None:
    piped.active(1, at(0), tenant="acme")
    piped.awaiting_ack(1, at(0), first=10)
    for tenant, way_out in (("acmee", "Did you mean acme?"), (TENANT, "onex deadlines holds")):
        order = ("--tenant", tenant, "--reason", "site closed")
        refused = onex(piped.archive.settings, "override", *order).exception
        assert isinstance(refused, ConfigurationError)
        assert f"Tenant '{tenant}' has no active node" in str(refused)
        assert way_out in str(refused)
    assert overrides(piped.archive.platform) == []
