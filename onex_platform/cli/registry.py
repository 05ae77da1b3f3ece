"""`onex registry`: nodes as the registry sees them, now or then, and whether the log agrees."""

from __future__ import annotations

import getpass
import json
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import click

from onex_platform.base.errors import ConfigurationError
from onex_platform.cli.opening import attached_platform
from onex_platform.cli.options import tenant_option
from onex_platform.domain.order import moment_of
from onex_platform.domain.projection import ModelRegistrationProjection
from onex_platform.domain.states import EnumNodeType, EnumRegistrationState
from onex_platform.engines.spark.session import open_session
from onex_platform.health.asking import Order, ask_everybody, ask_nodes
from onex_platform.ingest.archive import registration_log
from onex_platform.log.page_log import PageLog
from onex_platform.projections import checks
from onex_platform.projections.fold.set_aside import SetAside
from onex_platform.projections.history import hourly_states
from onex_platform.projections.reader import (
    PageRequest,
    ProjectionReaderRegistration,
    RegistrationFilter,
)
from onex_platform.projections.rebuild import proof
from onex_platform.projections.rebuild.rebuild import open_rebuild
from onex_platform.projections.rebuild.scopes import (
    entity_of,
    parse_moment,
    require_node_of,
    scope_of,
)
from onex_platform.projections.rebuild.side_table import Comparison

_COLUMNS = ("entity_id", "node_name", "tenant", "node_type", "current_state", "last_heartbeat_at")
_ASIDE = " *"


class _Instant(click.ParamType[datetime]):
    name = "time"

    def convert(self, value: Any, param: Any, ctx: Any) -> datetime:
        try:
            return value if isinstance(value, datetime) else parse_moment(value)
        except ConfigurationError as error:
            self.fail(error.message, param, ctx)


_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead.")


@click.group("registry")
def command() -> None:
    """Ask the registry about nodes, now or at any moment of the past, and rebuild it from the log.

    A NODE is a UUID in any spelling, or the plain-text id that it uses within its tenant.
    """


@command.command("show")
@click.argument("node")
@tenant_option
@_json_option
def show_command(node: str, tenant: str | None, as_json: bool) -> None:
    """Show everything that is known of a NODE, deregistered or not; exit code 1 if nothing is.

    A node that is set aside is shown as it was when its events could last be folded, and since when
    and why they can't be.
    """
    with _log() as log:
        entity_id = entity_of(log.settings, node, tenant)
        reader = ProjectionReaderRegistration.of(log)
        row = reader.get_entity_state(entity_id, include_deregistered=True)
        aside = reader.get_set_aside([entity_id]).get(entity_id)
    _show_node(node, row, as_json, aside)


@command.command("list")
@click.option("--state", type=click.Choice([state.value for state in EnumRegistrationState]))
@click.option("--type", "node_type", type=click.Choice([kind.value for kind in EnumNodeType]))
@click.option("--tenant", help="Only nodes of this tenant.")
@click.option("--capability", help="Only nodes that support it: flag, operation or protocol.")
@click.option("--include-deregistered", is_flag=True, help="Closed rows as well.")
@click.option("--limit", type=click.IntRange(min=1, max=10_000), default=100, show_default=True)
@click.option("--cursor", help="Go on where a page ended: the cursor that it printed.")
@_json_option
def list_command(
    state: str | None,
    node_type: str | None,
    tenant: str | None,
    capability: str | None,
    as_json: bool,
    **page: Any,
) -> None:
    """List nodes, page by page."""
    wanted = RegistrationFilter(
        state=EnumRegistrationState(state) if state else None,
        node_type=EnumNodeType(node_type) if node_type else None,
        tenant=tenant,
        capability=capability,
    )
    with _log() as log:
        reader = ProjectionReaderRegistration.of(log)
        found = reader.find(wanted, log.domain, PageRequest(**page))
        aside = reader.get_set_aside([row.entity_id for row in found.items], log.domain)
    if as_json:
        told = {str(mark.entity_id): _told(mark) for mark in aside.values()}
        click.echo(json.dumps(found.model_dump(mode="json") | {"set_aside": told}, indent=2))
        return
    _show_table(found.items, aside.keys())
    if found.next_cursor is not None:
        click.echo(f"There are more; go on with --cursor '{found.next_cursor}'", err=True)


@command.command("as-of")
@click.argument("time", type=_Instant())
@click.option("--node", help="Only this node; without it, the whole fleet.")
@tenant_option
@click.option("--rows", is_flag=True, help="Every row of the fleet, not only the counts.")
@_json_option
def as_of_command(
    time: datetime, node: str | None, tenant: str | None, rows: bool, as_json: bool
) -> None:
    """Say what the state was at TIME, such as 2026-03-01T12:00:00Z.

    It is what the log held before that moment, from the nearest stored hour on.
    """
    require_node_of(node, tenant)
    if node is not None and rows:
        raise ConfigurationError("--rows is about the fleet; leave out --node or --rows.")
    with _log() as log:
        reader = ProjectionReaderRegistration.of(log)
        if node is not None:
            entity_id = entity_of(log.settings, node, tenant)
            found = reader.get_entity_state_as_of(entity_id, time, include_deregistered=True)
            _show_node(node, found, as_json)
            return
        with open_session(log.settings, []) as spark:
            if not rows:
                _show_counts(reader.count_by_state_as_of(spark, time), as_json)
                return
            fleet = reader.iter_all_as_of(spark, time, include_deregistered=True)
            if as_json:
                for row in fleet:
                    click.echo(_json_of(row))
            else:
                _show_table(fleet)


@command.command("history")
@click.option("--hour", type=_Instant(), help="Write this hour, again if it was written before.")
def history_command(hour: datetime | None) -> None:
    """Store the end state of every hour that is over, from which as-of starts."""
    with _log() as log, open_session(log.settings, []) as spark:
        for each in [hour] if hour else hourly_states.unwritten_hours(log):
            state = hourly_states.write_hour(spark, log, each)
            click.echo(f"{hourly_states.hour_of(each).isoformat()}  {state.nodes} nodes")


@command.command("prove")
@click.option("--sample", type=click.IntRange(min=1), help="About so many rows; default: all.")
@_json_option
def prove_command(sample: int | None, as_json: bool) -> None:
    """Fold the log again and compare the live rows with it; exit code 1 if they differ."""
    with _log() as log, open_session(log.settings, []) as spark:
        proved = proof.live_equals_replay(spark, log, sample)
    _show_comparison(proved.comparison, proved.events, as_json)
    if not proved.holds:
        click.echo(checks.live_equals_replay(proved).description, err=True)
        sys.exit(1)


@command.command("rebuild")
@click.option("--node", help="Only this node.")
@tenant_option
@click.option("--since", type=_Instant(), help="Only nodes that events from this time on touched…")
@click.option("--until", type=_Instant(), help="…and before this one.")
@click.option("--dry-run", is_flag=True, help="Compare only.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@_json_option
def rebuild_command(
    node: str | None,
    tenant: str | None,
    since: datetime | None,
    until: datetime | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Fold the log anew and put right every row that differs; nothing is emitted.

    A node that was set aside gets its row and goes on, if its events can be folded now.

    The pipeline goes on meanwhile. Exit code 1 if a dry run finds a difference.
    """
    with _log() as log:
        scope = scope_of(log.settings, node=node, tenant=tenant, since=since, until=until)
        with (
            open_session(log.settings, []) as spark,
            open_rebuild(spark, log, scope) as rebuild,
        ):
            rebuild.catch_up()
            comparison = rebuild.compare()
            _show_comparison(comparison, rebuild.events, as_json)
            if dry_run:
                sys.exit(1 if comparison.changes or comparison.raising else 0)
            if not comparison.changes and not comparison.moved_on:
                return
            agreed = comparison.changes + comparison.moved_on
            if not yes:
                click.confirm(f"Change up to {agreed} rows?", abort=True, err=True)
            swapped = rebuild.swap(at_most=agreed)
    click.echo(f"{swapped.changes} rows changed.", err=True)


@command.command("ask")
@click.argument("nodes", metavar="[NODE]...", nargs=-1)
@click.option("--all", "everybody", is_flag=True, help="All nodes of the tenant, or of every one.")
@tenant_option
@click.option("--reason", required=True, help="Why; the nodes are told.")
@click.option("--by", default=getpass.getuser, help="Who asks; by default your user name.")
def ask_command(
    nodes: tuple[str, ...], everybody: bool, tenant: str | None, reason: str, by: str
) -> None:
    """Ask nodes to introspect: those that are named, or with --all, but not often, a whole tenant.

    \b
    Examples:
      onex registry ask worker-7 --reason "its capabilities look old"
      onex registry ask --all --tenant omnibase --reason "contracts have changed"
    """
    if everybody == bool(nodes):
        raise ConfigurationError("Name nodes, or give --all; one of the two.")
    order = Order(by, reason, datetime.now(UTC))
    with attached_platform("postgres") as platform:
        if everybody:
            asked = ask_everybody(platform, [tenant] if tenant else [], order)
            click.echo(f"All nodes are asked, of: {', '.join(asked) or 'nobody'}.")
        else:
            new = ask_nodes(platform, nodes, tenant, order)
            click.echo(f"{new} of {len(nodes)} nodes are asked; the others were already.")


@contextmanager
def _log() -> Iterator[PageLog]:
    with attached_platform("postgres") as platform:
        yield registration_log(platform)


def _show_node(
    node: str,
    row: ModelRegistrationProjection | None,
    as_json: bool,
    aside: SetAside | None = None,
) -> None:
    if aside is not None:
        click.echo(f"The events of {node} are not folded, {aside}", err=True)
    if row is None:
        click.echo(f"{node} is not known.", err=True)
        sys.exit(1)
    shown: dict[str, Any] = json.loads(_json_of(row))
    if aside is not None:
        shown["set_aside"] = _told(aside)
    if as_json:
        click.echo(json.dumps(shown, indent=2, ensure_ascii=False))
        return
    _show_pairs((name, value) for name, value in shown.items() if value)


def _told(mark: SetAside) -> dict[str, Any]:
    """Why a row stands still."""
    return {
        "since": mark.since.isoformat(),
        "event_id": str(mark.event_id),
        "kind": mark.kind,
        "error": mark.error,
    }


def _show_table(
    rows: Iterable[ModelRegistrationProjection], aside: Collection[UUID] = frozenset()
) -> None:
    line = "{:<36}  {:<24}  {:<12}  {:<12}  {:<20}  {}"
    click.echo(line.format(*_COLUMNS))
    for row in rows:
        shown = row.model_dump(mode="json")
        if row.entity_id in aside:
            shown["current_state"] += _ASIDE
        click.echo(line.format(*(shown[name] or "" for name in _COLUMNS)).rstrip())
    if aside:
        click.echo(f"{_ASIDE.strip()}: set aside, as it last was; `onex registry show` says why.")


def _show_counts(counts: Mapping[EnumRegistrationState, int], as_json: bool) -> None:
    numbers = {state.value: count for state, count in counts.items()}
    if as_json:
        click.echo(json.dumps(numbers, indent=2))
    else:
        _show_pairs(numbers.items())


def _show_comparison(comparison: Comparison, events: int, as_json: bool) -> None:
    numbers = asdict(comparison)
    differences = numbers.pop("differences")
    numbers |= {"folded_up_to": moment_of(comparison.position).isoformat(), "events": events}
    if as_json:
        details = [difference._asdict() for difference in differences]
        click.echo(json.dumps(numbers | {"differences": details}, indent=2, default=str))
        return
    _show_pairs(numbers.items())
    for difference in differences:
        changes = ", ".join(f"{n}: {old} → {new}" for n, (old, new) in difference.columns.items())
        click.echo(f"{difference.verdict}  {difference.entity_id}  {changes}")


def _show_pairs(pairs: Iterable[tuple[str, Any]]) -> None:
    for name, value in pairs:
        click.echo(f"{name.replace('_', ' '):<28}  {value}")


def _json_of(row: ModelRegistrationProjection, indent: int | None = None) -> str:
    return row.model_dump_json(
        indent=indent, exclude={"row_version"} if not row.row_version else None
    )
