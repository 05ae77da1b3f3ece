"""Trees of contracts on disk, for tests that judge them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from onex_platform.base.paths import project_folder


def write_tree(root: Path, files: Mapping[str, str | bytes]) -> Path:
    """The platform's policy in `root`, and these files beside it or in its place."""
    shutil.copytree(project_folder("contracts") / "policy", root / "policy", dirs_exist_ok=True)
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root
