"""The demo on a secured broker, with exactly the rights that a plan gives the platform."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from onex_platform.base.settings import PagesSettings, Settings
from onex_platform.cli.demo import play_fleet, run_pipeline, show, show_registry
from onex_platform.engines.kafka.access import rights
from onex_platform.engines.kafka.clients import open_admin
from onex_platform.governance.cluster import plan
from onex_platform.governance.governed import Governed
from onex_platform.governance.state import principal_of, rights_of
from onex_platform.simulate.plan import plan_for
from onex_platform.simulate.profiles import PROFILES
from onex_platform.topics.catalogue import load_whole_catalogue
from onex_platform_tests.support.governed_clusters import settle
from onex_platform_tests.support.kafka_accounts import as_account

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.servers, pytest.mark.long]

_ACCOUNT = "onex-platform"


@pytest.fixture
def platform(secured: Settings, store_settings: Settings, tmp_path: Path) -> Settings:
    """The platform's account on the secured broker, with a database of the test's own."""
    settle(Governed.of(secured, load_whole_catalogue()))
    own = {
        "kafka": as_account(secured, _ACCOUNT).kafka,
        "pages": PagesSettings(url=str(tmp_path / "pages"), buckets=4, settle_seconds=0.05),
    }
    return store_settings.model_copy(update=own)


def test_the_demo_passes_with_exactly_the_rights_of_the_plan(
    platform: Settings, secured: Settings, spark: SparkSession
) -> None:
    governed = Governed.of(secured, load_whole_catalogue())
    assert plan(governed).is_empty
    [account] = [found for found in governed.policy.access.accounts if found.name == _ACCOUNT]
    with open_admin(secured) as admin:
        held = {found for found in rights(admin) or () if found.principal == principal_of(_ACCOUNT)}
    assert held == set(rights_of(account, governed.policy, "dev"))
    fleet = plan_for(
        platform,
        nodes=6,
        duration=timedelta(seconds=2),
        seed=7,
        speed=60,
        profile=PROFILES["stormy"],
    )
    played, received = play_fleet(platform, fleet)
    registry = run_pipeline(platform)  # in the session that runs already
    assert show(played, received)
    assert show_registry(registry)
