"""Whatever process is killed, stopped or restarted, the next new node gets its answer.

The short form of `campaigns.always_on`: one registry with short leases, one fault after the other,
and in the end the whole account. The order matters little; what is killed is there again before its
turn comes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from onex_platform_tests.campaigns.always_on import (
    FAULTS,
    Fault,
    Trial,
    living_registry,
    require_everything,
    require_shown,
)
from onex_platform_tests.support.stacks import embedded_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.servers, pytest.mark.long, pytest.mark.timeout(600)]

PATIENCE = 150.0
SHORT = {
    # Without one that stands by, a new run has to be started for everyone that dies.
    "ONEX_PIPELINE_WARM_RUNS": "1",
    "ONEX_SPARK_MASTER": "local[1]",
    "ONEX_PIPELINE_LEASE_SECONDS": "1.5",
    "ONEX_PIPELINE_STALL_SECONDS": "3",
    "ONEX_PIPELINE_POLL_SECONDS": "0.2",
    "ONEX_PAGES_SETTLE_SECONDS": "0.1",
}


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    folder = tmp_path_factory.mktemp("always-on")
    with living_registry(embedded_settings(folder / "stack"), folder, SHORT, PATIENCE) as living:
        yield living


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.replace(" ", "-"))
def test_the_next_new_node_is_answered_after(trial: Trial, fault: Fault) -> None:
    blow = trial.strike(fault, PATIENCE)
    assert blow.seconds is not None, trial.house.log("daemon")[-3000:]
    require_shown(trial, fault, blow, PATIENCE)


def test_in_the_end_nothing_is_lost_and_nobody_has_expired(
    trial: Trial, spark: SparkSession
) -> None:
    require_everything(trial, spark, PATIENCE)
