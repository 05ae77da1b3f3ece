"""docs/dagster.md names everything that the graph holds, and nothing that it does not."""

from __future__ import annotations

import re

import dagster as dg

from onex_platform.definitions import build_definitions
from onex_platform_tests.support.doc_pages import CHECKOUT

PAGE = (CHECKOUT / "docs/dagster.md").read_text()


def _listed(heading: str) -> set[str]:
    """The names in the first column of the section's tables."""
    [section] = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    return set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))


def _repository() -> dg.RepositoryDefinition:
    return build_definitions().get_repository_def()


def test_every_asset_and_check_is_described() -> None:
    graph = _repository().asset_graph
    assert _listed("Assets") == {key.path[0] for key in graph.materializable_asset_keys}
    assert _listed("Checks") == {key.name for key in graph.asset_check_keys}


def test_every_job_and_sensor_is_described() -> None:
    repository = _repository()
    jobs = {job.name for job in repository.get_all_jobs() if not job.name.startswith("__")}
    assert _listed("Jobs") == jobs
    sensors = {sensor.name for sensor in repository.sensor_defs}
    assert _listed("Sensors and schedules") == sensors


def test_every_schedule_is_mentioned_with_its_job() -> None:
    scheduled = {schedule.job_name for schedule in _repository().schedule_defs}
    assert scheduled == set(re.findall(r"^\| `(\w+)` \| schedule,", PAGE, re.MULTILINE))
