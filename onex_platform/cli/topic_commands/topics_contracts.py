"""`onex topics`: the verbs that judge, make and export contracts; no server is asked."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path

import click

from onex_platform.base.errors import ConfigurationError
from onex_platform.base.paths import project_folder
from onex_platform.topics.catalogue import Catalogue, load_whole_catalogue
from onex_platform.topics.contract_folders import folder_of
from onex_platform.topics.export import asyncapi, edges, mermaid, python_enum
from onex_platform.topics.grammar import ENVIRONMENTS, logical, parse, parse_logical, suggestion
from onex_platform.topics.lint.engine import lint
from onex_platform.topics.lint.report import as_json, as_sarif, as_text, rule_table
from onex_platform.topics.node_contracts import judge_node
from onex_platform.topics.policy import Policy, read_policy
from onex_platform.topics.reading import contract_files, read_contract
from onex_platform.topics.scaffold import TopicDraft, baseline, files_of
from onex_platform.topics.schemas.generated import generated_schema

_FOLDER = click.option(
    "--contracts",
    "root",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="The folder of contracts; by default the platform's own.",
)


@click.command("lint")
@_FOLDER
@click.option("--format", "form", type=click.Choice(["text", "json", "sarif"]), default="text")
@click.option("--rules", "show_rules", is_flag=True, help="Print the table of rules and stop.")
def lint_command(root: Path | None, form: str, show_rules: bool) -> None:
    """Judge every contract by the rules; all violations in one run.

    Ends with 1 if an error was found; warnings alone end with 0.
    """
    if show_rules:
        click.echo(rule_table())
        return
    root = root or project_folder("contracts")
    report, shown = lint(root), _shown(root)
    if form == "json":
        click.echo(as_json(report))
    elif form == "sarif":
        click.echo(as_sarif(report, shown))
    else:
        for line in as_text(report, shown):
            click.echo(line)
    if report.errors:
        raise SystemExit(1)


@click.command("name")
@click.argument("name")
def name_command(name: str) -> None:
    """Say what a broker's topic name means: its dialect, its contract and where that stands."""
    root = project_folder("contracts")
    policy, found = read_policy(root / "policy"), parse(name)
    policy.require_known(found)
    contract = load_whole_catalogue()[str(logical(found))]
    folder = root / folder_of(contract.name, policy.is_onex_entity)
    for field, value in (
        ("dialect", found.dialect),
        ("contract", contract.topic),
        ("folder", folder),
        ("owner", contract.owner),
        ("description", contract.description),
    ):
        click.echo(f"{field:12}{value}")


@click.command("check-node")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
def check_node_command(paths: tuple[Path, ...]) -> None:
    """Judge the event channels of nodes' contracts by specification 002's four rules."""
    root = project_folder("contracts")
    catalogue, policy = Catalogue.from_folder(root), read_policy(root / "policy")
    broken = 0
    for path in paths:
        for found in judge_node(path, catalogue, policy):
            click.echo(f"{path}:{found.line}: error {found.rule}: {found.message}")
            broken += 1
    if broken:
        raise SystemExit(1)


@click.command("new")
@click.argument("name")
@_FOLDER
@click.option("--owner", required=True, help="The team that answers for it.")
@click.option("--role", required=True, help="Who writes and reads it at first.")
@click.option("--key", help="The field that is the key; not with --baseline.")
@click.option("--description", default="To be described.", help="One sentence.")
@click.option(
    "--baseline", "whole_context", is_flag=True, help="NAME is a context: its first topics."
)
def new_command(
    name: str,
    root: Path | None,
    owner: str,
    role: str,
    key: str | None,
    description: str,
    whole_context: bool,
) -> None:
    """Write the files of a new topic, or the first topics of a context; they pass lint at once.

    NAME has neither environment nor tenant: kb.evt.page-changed.v1
    """
    root = root or project_folder("contracts")
    policy = read_policy(root / "policy")
    _require(owner, policy.teams, "owner", "teams")
    _require(role, policy.access.roles, "role", "access")
    if whole_context:
        _require(name, policy.contexts, "context", "contexts")
        drafts = list(baseline(name, owner, role))
    else:
        drafts = [_draft(name, owner, role, key, description, policy)]
    files = {path: text for draft in drafts for path, text in files_of(draft, policy).items()}
    _write(root, files)


@click.command("schemas")
@_FOLDER
def schemas_command(root: Path | None) -> None:
    """Write the generated schemas of onex topics anew."""
    root = root or project_folder("contracts")
    policy = read_policy(root / "policy")
    for path in contract_files(root):
        generated = generated_schema(read_contract(path, policy))
        target = path.with_name("value.schema.json")
        if generated is not None and (
            not target.exists() or target.read_text(encoding="utf-8") != generated
        ):
            target.write_text(generated, encoding="utf-8")
            click.echo(f"written  {target.relative_to(root)}")


@click.command("release")
@_FOLDER
def release_command(root: Path | None) -> None:
    """Keep today's schemas as the released ones; later changes are judged against them."""
    root = root or project_folder("contracts")
    if errors := lint(root).errors:
        raise ConfigurationError(
            f"{errors} rules are broken; what breaks rules is not released.",
            hint="`onex topics lint` names them.",
        )
    for path in contract_files(root):
        released = path.parent / "released"
        shutil.rmtree(released, ignore_errors=True)
        released.mkdir()
        for schema in path.parent.glob("*.schema.*"):
            shutil.copyfile(schema, released / schema.name)
    click.echo(f"{len(contract_files(root))} topics released.")


@click.command("export")
@click.option("--format", "form", type=click.Choice(["asyncapi", "python"]), default="asyncapi")
@click.option("--environment", type=click.Choice(ENVIRONMENTS), default="prod")
@click.option("--tenant", help="Whose names; by default the home tenant's.")
def export_command(form: str, environment: str, tenant: str | None) -> None:
    """Print the catalogue as AsyncAPI 3 with Kafka bindings, or as a Python enumeration."""
    if form == "python":
        click.echo(python_enum(load_whole_catalogue()), nl=False)
        return
    root = project_folder("contracts")
    policy = read_policy(root / "policy")
    tenant = tenant or policy.home
    _require(tenant, policy.tenants, "tenant", "tenants")
    document = asyncapi(
        load_whole_catalogue(), policy, root, environment=environment, tenant=tenant
    )
    click.echo(json.dumps(document, indent=2))


@click.command("graph")
@click.option("--format", "form", type=click.Choice(["text", "mermaid", "json"]), default="text")
@click.option("--context", help="Only topics whose name has this word.")
def graph_command(form: str, context: str | None) -> None:
    """Show who publishes and who reads what."""
    contracts = [
        contract
        for contract in load_whole_catalogue()
        if context is None or context in contract.topic.split(".")
    ]
    if form == "mermaid":
        click.echo(mermaid(contracts))
    elif form == "json":
        click.echo(json.dumps([edge._asdict() for edge in edges(contracts)], indent=2))
    else:
        for role, verb, topic in sorted(edges(contracts)):
            click.echo(f"{role}  {verb}  {topic}")


def _draft(
    name: str, owner: str, role: str, key: str | None, description: str, policy: Policy
) -> TopicDraft:
    parsed = parse_logical(name)
    context = getattr(parsed, "context", None)
    if context is not None:
        _require(context, policy.contexts, "context", "contexts")
    if key is None:
        raise ConfigurationError(
            f"Topic {name!r} needs a key.", hint="Give --key, such as page_id."
        )
    return TopicDraft(parsed, owner, key, (role,), (role,), description)


def _require(word: str, known: Iterable[str], what: str, file: str) -> None:
    if word not in known:
        raise ConfigurationError(
            f"The {what} {word!r} is not known{suggestion(word, list(known))}".rstrip("?") + ".",
            hint=f"contracts/policy/{file}.yaml lists them.",
        )


def _write(root: Path, files: dict[str, str]) -> None:
    for name in files:
        if (root / name).exists():
            raise ConfigurationError(
                f"{root / name} exists already; nothing was written.",
                hint="Change it by hand, or choose another version.",
            )
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        click.echo(f"written  {path}")


def _shown(root: Path) -> Path:
    """The folder as people would name it from here."""
    here = Path.cwd()
    return root.resolve().relative_to(here) if root.resolve().is_relative_to(here) else root


COMMANDS = (
    lint_command,
    name_command,
    check_node_command,
    new_command,
    schemas_command,
    release_command,
    export_command,
    graph_command,
)
