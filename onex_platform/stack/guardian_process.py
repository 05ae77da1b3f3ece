"""The guardian: waits for its starter's end, then stops what that has left."""

from __future__ import annotations

import sys
from pathlib import Path

from onex_platform.base.settings import Settings, StackSettings
from onex_platform.stack.folders import ProcessIdentity
from onex_platform.stack.lifecycle import stop_started_by


def main(stack: Path) -> None:
    starter, *watched = (line.strip() for line in sys.stdin)
    # Only the folder counts here, and a wrong variable must not keep servers running.
    settings = Settings.model_construct(stack=StackSettings(folder=stack))
    stop_started_by(
        ProcessIdentity.model_validate_json(starter), settings=settings, services=watched
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
