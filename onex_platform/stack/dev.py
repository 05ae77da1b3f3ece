"""`dagster dev` on the embedded servers, with Dagster's history in the stack's PostgreSQL."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence

from onex_platform.engines.migrations import migrate
from onex_platform.environment import child_environment
from onex_platform.errors import ConfigurationError
from onex_platform.paths import project_file
from onex_platform.settings import Settings, address_variables
from onex_platform.stack import processes
from onex_platform.stack.folders import ProcessIdentity, ServerRecord, StackFolder
from onex_platform.stack.lifecycle import attach, guarded
from onex_platform.stack.ports import LOOPBACK, require_free_port
from onex_platform.stack.progress import Report
from onex_platform.topics.provision import create_topics

_DAGSTER_DEV = (
    *("-m", "dagster", "dev"),
    "--module-name=onex_platform.definitions",
    f"--host={LOOPBACK}",
)
_NAME = "dagster"


def develop(settings: Settings, *, services: Sequence[str], port: int, report: Report) -> int:
    """Run Dagster's web interface and daemon until they end, and give their exit code.

    At its end, and at ours, everything that was not running before is stopped.
    """
    if settings.postgres.url is not None and settings.postgres.dagster_url is None:
        raise ConfigurationError(
            "ONEX_POSTGRES_URL is set, but no database for Dagster's own storage.",
            hint="Set ONEX_POSTGRES_DAGSTER_URL as well, or unset both.",
        )
    require_free_port(port, "Dagster's web interface", way_out="choose another with --port")
    with guarded(settings, services=services, report=report) as guardian:
        attached = attach(settings, services=services)
        report("Applying migrations and creating topics")
        migrate(attached)
        create_topics(attached)
        stack = StackFolder(settings)
        home = stack.server(_NAME).path
        home.mkdir(parents=True, exist_ok=True)
        shutil.copy(project_file("dagster.yaml"), home)
        guardian.watch(_NAME)
        dagster = processes.start(
            [sys.executable, *_DAGSTER_DEV, f"--port={port}"],
            environment=child_environment(
                {**address_variables(attached), "DAGSTER_HOME": str(home)}
            ),
        )
        identity = ProcessIdentity.of(dagster)
        stack.remember(
            _NAME, ServerRecord(process=identity, ports=(port,), starter=guardian.starter)
        )
        exit_code: int = dagster.wait()
        return exit_code
