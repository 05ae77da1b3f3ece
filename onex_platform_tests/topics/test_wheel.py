"""An installation from a wheel, outside a checkout, has its contracts."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from onex_platform.base.paths import project_folder

pytestmark = pytest.mark.servers  # builds a wheel, which takes longer than the fast subset may


def test_a_wheel_brings_every_contract_and_lists_and_lints(tmp_path: Path) -> None:
    checkout = project_folder("contracts").parent
    source = tmp_path / "source"
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "dagster.yaml"):
        source.mkdir(exist_ok=True)
        shutil.copy(checkout / name, source / name)
    for name in ("contracts", "sql", "onex_platform"):
        shutil.copytree(checkout / name, source / name)
    build = [
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        str(tmp_path),
        str(source),
    ]
    subprocess.run([sys.executable, "-m", "pip", *build], check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    [data] = installed.glob("*.data/data")
    shutil.copytree(data, installed / "prefix")
    program = (
        f"import sys; sys.prefix = {str(installed / 'prefix')!r}; sys.path.insert(0, "
        f"{str(installed)!r}); from onex_platform.cli.main import main; main()"
    )

    def onex(*arguments: str) -> str:
        command = [sys.executable, "-I", "-c", program, *arguments]
        done = subprocess.run(command, check=True, cwd=tmp_path, capture_output=True, text=True)
        return done.stdout

    assert "onex.node.heartbeat.published.v1" in onex("topics", "list")
    told = onex("topics", "lint")
    assert "installed/prefix/share" in told
    assert " 0 errors" in told
