"""How commands name a node: a UUID in any spelling, or a plain-text id within its tenant."""

from __future__ import annotations

import click

tenant_option = click.option(
    "--tenant", help="Whose node it is, if its id is plain text; by default ONEX_TENANT."
)
