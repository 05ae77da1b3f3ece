"""`onex pages`: what the archive holds, merging its small pages, and the proof that it is whole."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from onex_platform.cli.captured_pages import reconcile_command, replay_command
from onex_platform.cli.opening import attached_platform
from onex_platform.cli.snapshotter import dead_letters_command
from onex_platform.engines.spark.session import open_session
from onex_platform.ingest import losses
from onex_platform.ingest.archive import registration_log
from onex_platform.ingest.cuts.committed_cuts import CommittedCuts
from onex_platform.ingest.header_counts import header_counts
from onex_platform.ingest.verification import proof_of_death, verify_log
from onex_platform.log.compaction import compact
from onex_platform.log.page_log import PageLog
from onex_platform.log.stats import log_stats
from onex_platform.log.verify import orphans
from onex_platform.log.verify.page_check import PagesAccount, verify_pages
from onex_platform.projections.fold.refold import folded_to
from onex_platform.projections.reconciliation import look, settle

_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead.")
_dry_run_option = click.option("--dry-run", is_flag=True, help="Change nothing, say what would be.")


@click.group("pages")
def command() -> None:
    """Inspect the page archive, merge its small pages, and prove that it is whole."""


command.add_command(replay_command)
command.add_command(reconcile_command)
command.add_command(dead_letters_command)


@command.command("stats")
@_json_option
def stats_command(as_json: bool) -> None:
    """Count pages, bytes and events, and say how far the log reaches."""
    with _log() as log:
        numbers = asdict(log_stats(log)) | {"head": CommittedCuts(log).head()}
        groups = compact.plan(log, look(log).right_to)
        numbers["mergeable_pages"] = sum(len(group.pages) for group in groups)
    _show(numbers, as_json)


@command.command("headers")
@click.option("--days", default=7, show_default=True, type=click.IntRange(min=1), help="How many.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list instead of a table.")
def headers_command(days: int, as_json: bool) -> None:
    """Count events whose headers or key are not what their contract asks for, by topic and day."""
    since = datetime.now(UTC).date() - timedelta(days=days - 1)
    with attached_platform("postgres") as platform, platform.database.transaction() as cursor:
        counts = header_counts(cursor, platform.domain, since)
    if as_json:
        click.echo(json.dumps([count._asdict() for count in counts], default=str, indent=2))
        return
    for count in counts:
        click.echo(f"{count.day}  {count.topic:<44}  {count.finding:<22}  {count.records}")
    if not counts:
        click.echo(f"Since {since}, every header and key was as asked for.")


@command.command("compact")
@_dry_run_option
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=compact.GROUPS_PER_RUN,
    show_default=True,
    help="Merge at most so many groups of pages.",
)
def compact_command(dry_run: bool, limit: int) -> None:
    """Merge small pages that are folded and accounted for; exit code 1 if a group failed.

    The old pages stay for readers that use them; `onex pages sweep` removes them later.
    """
    with _log() as log:
        if dry_run:
            for group in compact.plan(log, look(log).right_to, limit):
                click.echo(f"would merge  {group}, {log.layout.describe(*group.span)}")
            return
        # Merging reads pages only: none of Spark's connectors is needed.
        with open_session(log.settings, []) as spark:
            below = settle(log, look(log))
            account = compact.compact(spark, log, below, limit)
    _show({name: value for name, value in asdict(account).items() if name != "failures"})
    for failure in account.failures:
        click.echo(f"failed  {failure}")
    sys.exit(1 if account.failures else 0)


@command.command("sweep")
@_dry_run_option
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=compact.PAGES_PER_SWEEP,
    show_default=True,
    help="Delete at most so many files.",
)
def sweep_command(dry_run: bool, limit: int) -> None:
    """Delete the files of pages that were replaced longer ago than the grace period."""
    with _log() as log:
        swept = compact.sweep(log, limit, dry_run=dry_run)
    verb = "would delete" if dry_run else "deleted"
    click.echo(f"{verb} {swept.pages} replaced pages, {swept.bytes} bytes")


@command.command("verify")
@click.option(
    "--sample", type=click.IntRange(min=0), help="Read so many pages, by chance; default: all."
)
@click.option("--delete-orphans", is_flag=True, help="Delete those that no run can need any more.")
@_json_option
def verify_command(sample: int | None, delete_orphans: bool, as_json: bool) -> None:
    """Prove that nothing is missing, damaged or twice; exit code 1 if something is.

    Orphans are files that no table names. They do no harm and are no fault.
    """
    with _log() as log:
        whole, pages = verify_log(log), _verified(log, sample)
        is_dead = proof_of_death(log, folded_to(log.database, log.domain))
        found = list(orphans.find_orphans(log, is_dead, datetime.now(UTC)))
        deleted = orphans.delete_orphans(log, found) if delete_orphans else 0
    faults = [*whole.faults, *pages.faults]
    numbers = asdict(whole) | asdict(pages) | {"deleted_orphans": deleted}
    if as_json:
        details = {
            "faults": [fault._asdict() for fault in faults],
            "orphans": [orphan._asdict() for orphan in found],
        }
        _show(numbers | details, as_json)
    else:
        _show(numbers | {"faults": len(faults), "orphans": len(found)})
        for line in (*faults, *found):
            click.echo(line)
    sys.exit(1 if faults else 0)


@command.command("skip-lost")
@click.option("--yes", is_flag=True, help="Don't ask.")
def skip_lost_command(yes: bool) -> None:
    """Go on behind records that the broker deleted before they were archived.

    They are gone; what is given up stays on record, and `onex pages verify` counts it. A topic that
    was made anew or cut short is read from its beginning.
    """
    with attached_platform("postgres", "kafka") as platform:
        lost = losses.find_losses(platform)
        if not lost:
            click.echo("Nothing is lost.")
            return
        for place, span in lost.deleted.items():
            click.echo(f"lost  {place} {span}")
        for place, restart in lost.restarted.items():
            click.echo(f"made anew or cut short  {place} {restart}")
        if not yes:
            click.confirm("Go on without these records?", abort=True)
        losses.accept_losses(platform, lost)
    if lost.deleted:
        records = sum(span.end - span.start for span in lost.deleted.values())
        click.echo(f"Reading goes on behind {records} lost offsets.")
    if lost.restarted:
        click.echo(f"Reading begins anew in {len(lost.restarted)} partitions.")


@contextmanager
def _log() -> Iterator[PageLog]:
    with attached_platform("postgres") as platform:
        yield registration_log(platform)


def _verified(log: PageLog, sample: int | None) -> PagesAccount:
    """A sample is read here, everything on Spark."""
    if sample is not None:
        return verify_pages(log, sample)
    with open_session(log.settings, []) as spark:
        return verify_pages(log, spark=spark)


def _show(numbers: Mapping[str, Any], as_json: bool = False) -> None:
    if as_json:
        click.echo(json.dumps(numbers, indent=2, default=str))
        return
    width = max(map(len, numbers))
    for name, value in numbers.items():
        click.echo(f"{name.replace('_', ' '):<{width}}  {'' if value is None else value}".rstrip())
