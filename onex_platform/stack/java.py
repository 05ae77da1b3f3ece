"""What the servers find on this machine: a Java that we don't bring along, and pyspark."""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from onex_platform.base.environment import child_environment
from onex_platform.base.errors import PrerequisiteError
from onex_platform.base.settings import Settings

MINIMUM_VERSION = 17

_HINT = (
    f"Install a JDK {MINIMUM_VERSION} or newer and put it on PATH, or point JAVA_HOME to it; "
    "or set the addresses of your own servers."
)


def find_java(settings: Settings) -> str:
    """The `java` command of the settings, new enough to run every server."""
    home = settings.stack.java_home
    command = shutil.which("java") if home is None else shutil.which(str(home / "bin" / "java"))
    if command is None:
        place = "on PATH" if home is None else f"in JAVA_HOME={str(home)!r}"
        raise PrerequisiteError(f"No Java was found {place}.", hint=_HINT)
    try:
        answer = subprocess.run(
            [command, "-version"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PrerequisiteError(f"{command} could not be run: {error}.", hint=_HINT) from error
    version = _major_version(answer.stderr + answer.stdout)
    if version is None or version < MINIMUM_VERSION:
        found = "of an unknown version" if version is None else f"version {version}"
        raise PrerequisiteError(
            f"{command} is {found}; the embedded servers need {MINIMUM_VERSION} or newer.",
            hint=_HINT,
        )
    return command


def java_environment(settings: Settings, **variables: str) -> dict[str, str]:
    """The environment of a Java program, so that its start script picks the same Java."""
    home = settings.stack.java_home
    return child_environment(variables | ({} if home is None else {"JAVA_HOME": str(home)}))


def pyspark_folder() -> Path:
    """Where pyspark keeps its scripts and jars; found without the cost of importing it."""
    spec = find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise PrerequisiteError("pyspark is not installed.", hint="Install onex-platform anew.")
    return Path(spec.submodule_search_locations[0])


def _major_version(text: str) -> int | None:
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match.group(1)) if match else None
