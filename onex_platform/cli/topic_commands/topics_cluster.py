"""`onex topics`: the verbs that compare a cluster with its contracts, and change it."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import click
from pydantic import ValidationError

from onex_platform.base.errors import ConfigurationError
from onex_platform.base.settings import load_settings
from onex_platform.governance import cluster
from onex_platform.governance.cluster_plan import EnumDanger, Plan
from onex_platform.governance.governed import Governed
from onex_platform.governance.review import review
from onex_platform.governance.state import rights_of
from onex_platform.governance.subjects import pinned_schemas
from onex_platform.migration.present import catalogue_now
from onex_platform.stack import attach
from onex_platform.topics.catalogue import load_whole_catalogue
from onex_platform.topics.grammar import ENVIRONMENTS
from onex_platform.topics.policy import load_policy


def _governed() -> Governed:
    settings = attach(load_settings(), services=["kafka"])
    return Governed.of(settings, catalogue_now(settings, load_whole_catalogue()))


@click.command("plan")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write it to a file.")
def plan_command(out: Path | None) -> None:
    """Say what would bring the cluster to its contracts; changes nothing.

    \b
    onex topics plan --out plan.json
    """
    found = cluster.plan(_governed())
    if out is not None:
        out.write_text(found.model_dump_json(indent=2), encoding="utf-8")
    _echo(found)


@click.command("apply")
@click.argument("plan_file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option("--allow-shorter-retention", is_flag=True, help="Let records go earlier.")
@click.option("--allow-delete", is_flag=True, help="Delete topics whose deprecation is over.")
@click.option("--allow-revoke", is_flag=True, help="Take rights away.")
def apply_command(
    plan_file: Path, allow_shorter_retention: bool, allow_delete: bool, allow_revoke: bool
) -> None:
    """Take the steps of a plan, if the cluster is still as the plan saw it.

    \b
    onex topics apply plan.json
    onex topics apply plan.json --allow-revoke
    """
    try:
        agreed = Plan.model_validate_json(plan_file.read_bytes())
    except ValidationError as error:
        raise ConfigurationError(
            f"{plan_file} is no plan: {error.errors(include_url=False)[0]['msg']}.",
            hint="Make one with `onex topics plan --out FILE`.",
        ) from None
    flags = {
        EnumDanger.SHORTER_RETENTION: allow_shorter_retention,
        EnumDanger.DELETION: allow_delete,
        EnumDanger.REVOCATION: allow_revoke,
    }
    allowed = [danger for danger, is_allowed in flags.items() if is_allowed]
    click.echo(f"{cluster.apply(_governed(), agreed, allowed=allowed)} steps taken.")


@click.command("drift")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def drift_command(as_json: bool) -> None:
    """Say where the cluster differs from its contracts; ends with 1 if it does."""
    found = cluster.plan(_governed())
    if as_json:
        click.echo(found.model_dump_json(indent=2))
    else:
        _echo(found)
    if not found.agrees:
        raise SystemExit(1)


@click.command("review")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def review_command(as_json: bool) -> None:
    """Name commands and queries that nobody uses, and what falls due within a quarter."""
    found = review(_governed())
    if as_json:
        click.echo(json.dumps([asdict(due) for due in found], indent=2))
        return
    for due in found:
        click.echo(str(due))
    click.echo(f"{len(found)} to decide.")


@click.command("subjects")
@click.option("--json", "as_json", is_flag=True, help="Print them as JSON.")
def subjects_command(as_json: bool) -> None:
    """Print where the registry keeps each contract's schema: the version and id to pin."""
    governed = _governed()
    found = pinned_schemas(governed.settings, governed.wanted.subjects or {})
    if as_json:
        click.echo(json.dumps([asdict(pin) for pin in found], indent=2))
        return
    for pin in found:
        click.echo(f"{pin.subject}  version {pin.version}  id {pin.id}")


@click.command("password")
@click.argument("account")
@click.option("--stdin", "from_stdin", is_flag=True, help="Read it from standard input.")
def password_command(account: str, from_stdin: bool) -> None:
    """Let an account of the policy log in with a password, which is asked for.

    \b
    onex topics password onex-node
    printenv NODE_PASSWORD | onex topics password onex-node --stdin
    """
    if from_stdin:
        password = sys.stdin.readline().rstrip("\n")
    else:
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True)
    cluster.set_account_password(_governed(), account, password)
    click.echo(f"{account} has a new password.")


@click.command("access")
@click.argument("account")
@click.option("--environment", type=click.Choice(ENVIRONMENTS), default="prod")
def access_command(account: str, environment: str) -> None:
    """Print the rights of an account as the table of the docs; asks no server."""
    click.echo(access_table(account, environment))


def access_table(account: str, environment: str) -> str:
    """What the policy lets an account do, one line per resource."""
    policy = load_policy()
    known = {found.name: found for found in policy.access.accounts}
    if account not in known:
        raise ConfigurationError(
            f"The account {account!r} is not known.", hint=f"There are {', '.join(known)}."
        )
    rows: dict[tuple[str, str, str], set[str]] = {}
    for right in rights_of(known[account], policy, environment):
        rows.setdefault((right.resource, right.pattern, right.name), set()).add(right.operation)
    lines = ["| resource | pattern | name | operations |", "| --- | --- | --- | --- |"]
    for (resource, pattern, name), operations in sorted(rows.items()):
        lines.append(f"| {resource} | {pattern} | `{name}` | {', '.join(sorted(operations))} |")
    return "\n".join(lines)


def _echo(found: Plan) -> None:
    for step in found.steps:
        click.echo(str(step))
    for refusal in found.refusals:
        click.echo(f"impossible  {refusal}")
    for stranger in found.strangers:
        click.echo(f"unknown  {stranger}")
    for danger in found.dangers:
        click.echo(f"dangerous  {danger}")
    for note in found.notes:
        click.echo(f"note: {note}", err=True)
    click.echo(
        f"{len(found.steps)} steps, {len(found.refusals)} impossible, "
        f"{len(found.strangers)} unknown, {len(found.dangers)} dangerous rights."
    )


COMMANDS = (
    plan_command,
    apply_command,
    drift_command,
    review_command,
    subjects_command,
    password_command,
    access_command,
)
