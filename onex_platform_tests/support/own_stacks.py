"""Programs on a stack that one test has for itself, and a Maven registry in a folder."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from onex_platform.base.settings import Settings
from onex_platform.stack.ports import LOOPBACK

NewStack = Callable[..., Settings]


def onex(settings: Settings, *arguments: str) -> subprocess.Popen[str]:
    """The `onex` command on a stack, in a process of its own."""
    return _start([str(Path(sys.executable).with_name("onex")), *arguments], settings)


def python(settings: Settings, program: str) -> subprocess.Popen[str]:
    """A Python program that finds `stack` and the stack's `settings`, in a process of its own."""
    preface = (
        "from onex_platform import stack\n"
        "from onex_platform.base.settings import load_settings\n"
        "settings = load_settings()\n"
    )
    return _start([sys.executable, "-c", preface + program], settings)


def dagster_answers(port: int) -> bool:
    """Whether Dagster's web interface is there."""
    try:
        with urlopen(f"http://{LOOPBACK}:{port}/server_info", timeout=5) as answer:
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False


@contextmanager
def stranger(user: int | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has nothing to do with any stack."""
    with subprocess.Popen(["sleep", "300"], user=user) as process:
        try:
            yield process
        finally:
            process.kill()


def _start(command: list[str], settings: Settings) -> subprocess.Popen[str]:
    values = settings.stack.model_dump(exclude_none=True)
    variables = {f"ONEX_STACK_{name.upper()}": str(value) for name, value in values.items()}
    return subprocess.Popen(
        command,
        env={**os.environ, **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@dataclass(frozen=True)
class FolderRegistry:
    """A registry that Ivy reads from a folder: jars, poms and the checksums of both."""

    folder: Path

    @property
    def ivy_settings(self) -> Path:
        return self.folder / "ivysettings.xml"

    def publish(self, group: str, name: str, version: str, content: bytes) -> Path:
        place = self.folder.joinpath(*group.split("."), name, version)
        place.mkdir(parents=True)
        pom = (
            f"<project><modelVersion>4.0.0</modelVersion><groupId>{group}</groupId>"
            f"<artifactId>{name}</artifactId><version>{version}</version></project>"
        )
        jar = place / f"{name}-{version}.jar"
        for file, data in ((jar, content), (jar.with_suffix(".pom"), pom.encode())):
            file.write_bytes(data)
            digest = hashlib.sha1(data, usedforsecurity=False).hexdigest()
            file.with_name(f"{file.name}.sha1").write_text(digest)
        return jar


def write_ivy_settings(file: Path, root: str) -> Path:
    file.write_text(
        '<ivysettings><settings defaultResolver="only"/><resolvers>'
        f'<ibiblio name="only" m2compatible="true" root="{root}"/>'
        "</resolvers></ivysettings>"
    )
    return file
