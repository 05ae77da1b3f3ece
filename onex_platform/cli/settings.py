"""`onex settings`: the effective values, their source, and no secrets."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from onex_platform.base.environment import describe_variables, effective_values
from onex_platform.base.settings import Settings, load_settings


class _ListsVariables(click.Command):
    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Variables"):
            formatter.write_dl(describe_variables(Settings))


@click.command("settings", cls=_ListsVariables)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list instead of a table.")
@click.option("--describe", is_flag=True, help="Add what each setting is for.")
def command(as_json: bool, describe: bool) -> None:
    """Show every setting: variable, value in force, where it came from. Secrets are hidden."""
    values = effective_values(load_settings())
    if as_json:
        click.echo(json.dumps([asdict(value) for value in values], indent=2))
        return
    width = max(len(value.variable) for value in values)
    for value in values:
        line = f"{value.variable:<{width}}  {value.value or '(unset)':<28}  {value.source}"
        click.echo(f"{line}  {value.description}".rstrip() if describe else line)
