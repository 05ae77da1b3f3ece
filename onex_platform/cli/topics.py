"""`onex topics`: show the catalogue, and create its topics on a cluster."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import click

from onex_platform.base.settings import load_settings
from onex_platform.cli.topic_commands import topics_cluster, topics_contracts
from onex_platform.domain.events import EnumEventKind
from onex_platform.governance.provision import ProvisionReport, create_topics
from onex_platform.migration.present import catalogue_now
from onex_platform.stack import attach
from onex_platform.topics.catalogue import TopicContract, load_whole_catalogue
from onex_platform.topics.grammar import EnumTopicDialect

_COLUMNS = ("topic", "key", "partitions", "retention", "cleanup", "direction", "lag", "fold")
_DIALECTS = [dialect.value for dialect in EnumTopicDialect]
_KINDS = [kind.value for kind in EnumEventKind]


@click.group("topics")
def command() -> None:
    """List, judge, make and export topics, and bring them to a cluster."""


for _verb in (*topics_contracts.COMMANDS, *topics_cluster.COMMANDS):
    command.add_command(_verb)


@command.command("list")
@click.option("--dialect", type=click.Choice(_DIALECTS), help="Only names of this dialect.")
@click.option("--kind", type=click.Choice(_KINDS), help="Only topics of this event kind.")
@click.option("--json", "form", flag_value="json", help="Print the contracts as a JSON list.")
@click.option("--markdown", "form", flag_value="markdown", help="Print the table of the docs.")
def list_command(dialect: str | None, kind: str | None, form: str | None) -> None:
    """Show every topic; asks no server.

    The last column says whether the registration fold reads the topic.
    """
    contracts = [
        contract
        for contract in load_whole_catalogue()
        if dialect in (None, contract.name.dialect) and kind in (None, contract.event_kind)
    ]
    if form == "json":
        click.echo(json.dumps([_document(contract) for contract in contracts], indent=2))
    elif form == "markdown":
        click.echo(markdown_table(contracts))
    else:
        _echo_table(contracts)


@command.command("create")
@click.option("--dry-run", is_flag=True, help="Ask the cluster, change nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def create_command(dry_run: bool, as_json: bool) -> None:
    """Create the topics that are missing; harmless when repeated or run twice at once.

    A topic that differs from its contract, or that no contract knows, is reported and left alone.
    One that has moved and was retired is not made anew.
    """
    settings = attach(load_settings(), services=["kafka"])
    catalogue = catalogue_now(settings, load_whole_catalogue())
    report = create_topics(settings, catalogue, dry_run=dry_run)
    if as_json:
        click.echo(json.dumps(asdict(report), indent=2))
    else:
        _echo_report(report)


def markdown_table(contracts: Iterable[TopicContract]) -> str:
    """The table in docs/topics/README.md."""
    lines = [_COLUMNS, ("---",) * len(_COLUMNS), *map(_row, contracts)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _document(contract: TopicContract) -> dict[str, Any]:
    derived = {
        "dialect": contract.name.dialect,
        "event_kind": contract.event_kind,
        "direction": contract.direction,
        "lag_seconds": contract.lag._asdict(),
    }
    return contract.model_dump(mode="json") | derived


def _row(contract: TopicContract) -> tuple[str, ...]:
    return (
        contract.topic,
        contract.key,
        str(contract.partitions),
        contract.model_dump(mode="json")["retention"],
        contract.cleanup_policy,
        contract.direction,
        contract.category.value,
        "yes" if contract.registration_input else "no",
    )


def _echo_table(contracts: Iterable[TopicContract]) -> None:
    contracts = list(contracts)
    rows = [_COLUMNS, *map(_row, contracts)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())
    for contract in contracts:
        if contract.warning:
            click.echo(f"note: {contract.warning}", err=True)


def _echo_report(report: ProvisionReport) -> None:
    for topic in report.created:
        click.echo(f"{'would create' if report.dry_run else 'created'}  {topic}")
    for drift in report.drift:
        click.echo(f"differs  {drift}")
    for sentence in report.impossible:
        click.echo(f"impossible  {sentence}")
    for topic in report.unmanaged:
        click.echo(f"unknown  {topic}")
    click.echo(
        f"{len(report.created)} {'to create' if report.dry_run else 'created'}, "
        f"{len(report.existing)} existed, {len(report.drift)} settings differ, "
        f"{len(report.unmanaged)} topics without a contract."
    )
