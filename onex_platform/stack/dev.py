"""`dagster dev` on the embedded servers, with Dagster's history in the stack's PostgreSQL."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence

from onex_platform.base.environment import PREFIX, child_environment
from onex_platform.base.errors import ConfigurationError
from onex_platform.base.paths import project_file
from onex_platform.base.settings import Settings, address_variables
from onex_platform.engines.postgres.migrations import migrate
from onex_platform.governance.provision import create_topics
from onex_platform.migration.present import catalogue_now
from onex_platform.stack import client_programs, processes
from onex_platform.stack.folders import StackFolder
from onex_platform.stack.lifecycle import attach, guarded
from onex_platform.stack.ports import LOOPBACK, require_free_port
from onex_platform.stack.progress import Report
from onex_platform.topics.catalogue import Catalogue

_DAGSTER_DEV = (
    *("-m", "dagster", "dev"),
    "--module-name=onex_platform.definitions",
    f"--host={LOOPBACK}",
)
_WARM_RUNS = 2
_LASTING_SECONDS = 30


def develop(
    settings: Settings,
    catalogue: Catalogue,
    *,
    services: Sequence[str],
    port: int,
    report: Report,
) -> int:
    """Run Dagster's web interface and daemon until they end, and give their exit code.

    At its end, and at ours, everything that was not running before is stopped.
    """
    require_dagster_database(settings)
    require_free_port(port, "Dagster's web interface", way_out="choose another with --port")
    with guarded(settings, services=services, report=report) as guardian:
        attached = attach(settings, services=services)
        bring_up_to_date(attached, catalogue, report)
        home = StackFolder(settings).dagster_home
        home.mkdir(parents=True, exist_ok=True)
        shutil.copy(project_file("dagster.yaml"), home)
        variables = {
            **address_variables(attached),
            **_warm_runs(settings),
            "DAGSTER_HOME": str(home),
            client_programs.VARIABLE: guardian.client_marker(),
        }
        try:
            return _run_again_and_again(port, variables, report)
        except KeyboardInterrupt:
            report("Ending the runs, then Dagster, then what was started for it")
            raise


def _run_again_and_again(port: int, variables: dict[str, str], report: Report) -> int:
    """Run Dagster; `dagster dev` ends when one of its services dies, and is started again then.

    One that does not last has no chance: its exit code is given.
    """
    while True:
        began = time.monotonic()
        dagster = processes.start(
            [sys.executable, *_DAGSTER_DEV, f"--port={port}"],
            environment=child_environment(variables),
        )
        exit_code: int = dagster.wait()
        if exit_code == 0 or time.monotonic() - began < _LASTING_SECONDS:
            return exit_code
        report(f"Dagster ended with exit code {exit_code}; it is started again")


def _warm_runs(settings: Settings) -> dict[str, str]:
    """A registry at hand answers at once; whoever wants it otherwise says so."""
    if "warm_runs" in settings.pipeline.model_fields_set:
        return {}
    return {f"{PREFIX}PIPELINE_WARM_RUNS": str(_WARM_RUNS)}


def require_dagster_database(settings: Settings) -> None:
    """Refuse a PostgreSQL of one's own without a database for Dagster's storage."""
    if settings.postgres.url is not None and settings.postgres.dagster_url is None:
        raise ConfigurationError(
            "ONEX_POSTGRES_URL is set, but no database for Dagster's own storage.",
            hint="Set ONEX_POSTGRES_DAGSTER_URL as well, or unset both.",
        )


def bring_up_to_date(attached: Settings, catalogue: Catalogue, report: Report) -> None:
    """The tables and topics that the graph works on."""
    report("Applying migrations and creating topics")
    migrate(attached)
    create_topics(attached, catalogue_now(attached, catalogue))
