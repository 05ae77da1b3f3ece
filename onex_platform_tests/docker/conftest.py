"""The files of docker/, read once."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from dockerfile_parse import DockerfileParser

from onex_platform_tests.support.docker_files import (
    DOCKER,
    Stage,
)


@pytest.fixture(scope="session")
def compose() -> dict[str, Any]:
    return dict(yaml.safe_load((DOCKER / "compose.yaml").read_text()))


@pytest.fixture(scope="session")
def overlay() -> dict[str, dict[str, Any]]:
    """What compose.secured.yaml says of services, on top of the other file."""
    return dict(yaml.safe_load((DOCKER / "compose.secured.yaml").read_text())["services"])


@pytest.fixture(scope="session")
def services(compose: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return dict(compose["services"])


@pytest.fixture(scope="session")
def stages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Stage]:
    # The parser insists on a file that it may write.
    parser = DockerfileParser(str(tmp_path_factory.mktemp("docker") / "Dockerfile"))
    parser.content = (DOCKER / "Dockerfile").read_text()
    stages: dict[str, Stage] = {}
    for step in parser.structure:
        instruction, value = step["instruction"], step["value"]
        if instruction == "FROM":
            base, _, name = value.partition(" AS ")
            stages[name] = Stage(base, name, [])
        elif instruction != "COMMENT":
            list(stages.values())[-1].instructions.append((instruction, value))
    return stages
