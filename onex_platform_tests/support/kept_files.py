"""Files of earlier releases, kept as text: names, and contents in base64."""

from __future__ import annotations

import base64
import json
from pathlib import Path


def kept_files(path: Path) -> dict[str, bytes]:
    """The files that a JSON file keeps, by name."""
    kept: dict[str, list[str]] = json.loads(path.read_text())
    return {name: base64.b64decode("".join(lines)) for name, lines in kept.items()}
