"""How commands name a node: a UUID in any spelling, or a plain-text id within its tenant."""

from __future__ import annotations

from uuid import UUID

import click

from onex_platform.domain.identity import identify_node
from onex_platform.errors import ConfigurationError
from onex_platform.settings import Settings

tenant_option = click.option(
    "--tenant", help="Whose node it is, if its id is plain text; by default ONEX_TENANT."
)


def entity_of(settings: Settings, node: str, tenant: str | None) -> UUID:
    """The entity that a command line means."""
    try:
        return identify_node(node, tenant or settings.tenant).entity_id
    except ValueError as error:
        raise ConfigurationError(f"{error}.") from None
