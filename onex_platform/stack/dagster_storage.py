"""Dagster's storage, as `dagster.yaml` names it: a PostgreSQL, by default the embedded one.

Dagster makes its storage before anything else, in each of its processes. Whichever process comes
first, such as a plain `dagster dev` or `dagster job execute`, has the embedded servers for as long
as it lives; the ones that it starts find them through the stack's folder.
"""

from __future__ import annotations

import atexit
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Self

import click
from dagster._serdes import ConfigurableClassData
from dagster_postgres import DagsterPostgresStorage

from onex_platform.base.errors import OnexError
from onex_platform.base.settings import Settings, load_settings
from onex_platform.stack import client_programs
from onex_platform.stack.dev import bring_up_to_date, require_dagster_database
from onex_platform.stack.lifecycle import DEFAULT_SERVICES, attach, guarded
from onex_platform.topics.catalogue import load_catalogue


class PlatformStorage(DagsterPostgresStorage):
    """The database of ONEX_POSTGRES_DAGSTER_URL; if that is not set, the embedded stack's."""

    @classmethod
    def config_type(cls) -> dict[str, Any]:
        return {}

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData | None, _config: Mapping[str, Any]
    ) -> Self:
        try:
            settings = _with_database(load_settings())
        except OnexError as error:
            # Dagster's commands show it as one line, as ours do; anything else as a traceback.
            raise click.ClickException(_sentence(error)) from error
        url = settings.postgres.dagster_url
        return cls(postgres_url=url.get_secret_value() if url else "", inst_data=inst_data)


def _with_database(settings: Settings) -> Settings:
    """The settings with an address for Dagster's storage."""
    require_dagster_database(settings)
    if settings.postgres.dagster_url is not None:
        return settings
    if client_programs.is_marked():
        # Somebody above has the servers; if they are gone, this process ends with them.
        return attach(settings, services=("postgres",))
    return _serve_for_life(settings)


def _serve_for_life(settings: Settings) -> Settings:
    """Have the embedded servers until this process ends; those that run already are used."""
    life = ExitStack()
    guardian = life.enter_context(guarded(settings, services=DEFAULT_SERVICES, report=_report))
    atexit.register(_leave, life)
    attached = attach(settings)
    bring_up_to_date(attached, load_catalogue(), _report)
    client_programs.mark_children(guardian.client_marker())
    return attached


def _leave(life: ExitStack) -> None:
    try:
        life.close()
    except KeyboardInterrupt:
        return  # a second Ctrl-C: the guardian goes on without us
    except OnexError as error:
        _report(_sentence(error))


def _sentence(error: OnexError) -> str:
    return " ".join(filter(None, (error.message, error.hint)))


def _report(sentence: str) -> None:
    click.echo(sentence, err=True)
