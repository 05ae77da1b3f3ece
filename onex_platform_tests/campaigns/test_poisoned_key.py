"""The campaign of the poisoned key, in short: once with one instance, once while another moves."""

from __future__ import annotations

import pytest

from onex_platform.base.settings import Settings
from onex_platform_tests.campaigns.poisoned_key import run

pytestmark = pytest.mark.servers


@pytest.mark.parametrize("instances", [1, 2])
def test_a_poisoned_key_waits_and_comes_back_as_if_nothing_had_been(
    kafka_settings: Settings, instances: int
) -> None:
    assert len(list(run(kafka_settings, 5_000, 50, instances))) == 2
