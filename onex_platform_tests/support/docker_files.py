"""The files of docker/ and their parts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onex_platform.base.paths import project_folder

DOCKER = project_folder("docker")
CHECKOUT = DOCKER.parent


@dataclass(frozen=True)
class Stage:
    """One FROM of the Dockerfile with the instructions that follow it."""

    base: str
    name: str
    instructions: list[tuple[str, str]]

    def values(self, instruction: str) -> list[str]:
        return [value for name, value in self.instructions if name == instruction]


def bind_mounts(service: dict[str, Any]) -> list[Path]:
    """The files of the checkout that a service mounts."""
    return [
        DOCKER / volume.split(":")[0] for volume in service.get("volumes", []) if volume[0] in "./"
    ]


def named_volumes(service: dict[str, Any]) -> list[str]:
    return [volume.split(":")[0] for volume in service.get("volumes", []) if volume[0] not in "./"]
