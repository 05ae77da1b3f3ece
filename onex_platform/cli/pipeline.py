"""`onex pipeline`: the loop without Dagster, for containers and terminals."""

from __future__ import annotations

import signal
import time
from contextlib import suppress

import click

from onex_platform.base.settings import Settings, load_settings
from onex_platform.engines.postgres.leases import open_keeper
from onex_platform.engines.spark.session import open_session
from onex_platform.ingest.archive import open_archive
from onex_platform.migration.publication import LastPublished
from onex_platform.pipeline.loop import DrainAccount
from onex_platform.pipeline.standalone import follow, run_once
from onex_platform.stack import attach, spark_jars
from onex_platform.topics.catalogue import load_catalogue, load_whole_catalogue

_PROGRESS_SECONDS = 5


@click.group("pipeline")
def command() -> None:
    """Take events from Kafka into the log, the rows and the snapshots, without Dagster."""


@command.command("run")
@click.option("--once", is_flag=True, help="End when everything that waits now is published.")
@click.option("--follow", "follows", is_flag=True, help="Go on until Ctrl-C or SIGTERM.")
def run_command(once: bool, follows: bool) -> None:
    """Run the pipeline in this process.

    Of all instances, and of Dagster's runs, one holds the lease and works. The others stand by with
    a warm Spark, and one of them takes over within seconds when it ends or dies.

    \b
    Examples:
      onex pipeline run --once       drain what waits, then end
      onex pipeline run --follow     serve until Ctrl-C; start a second one to stand by
    """
    if once == follows:
        raise click.UsageError("Give one of --once and --follow.")
    # A container is stopped by SIGTERM; it ends us as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    settings = attach(load_settings())
    with suppress(KeyboardInterrupt):
        _run(settings, once)
        return
    _say("Ended; the lease is given back.")


def _run(settings: Settings, once: bool) -> None:
    jars = [] if settings.spark.remote else [str(jar) for jar in spark_jars(settings, _say)]
    _say("Opening Spark")
    with (
        open_keeper(settings) as keeper,
        open_session(settings, jars) as spark,
        open_archive(settings, load_catalogue()) as archive,
    ):
        published = LastPublished(archive.database, load_whole_catalogue())
        if not once:
            follow(spark, archive, keeper, published, _say, _Progress())
        account = run_once(spark, archive, keeper, published, _say, _Progress())
    if account is None:
        _say("Somebody else drained what waited.")
        return
    drained, relayed = account.drained, account.published
    _say(
        f"{drained.read} records in {drained.cuts} cuts, {drained.rows} rows written, "
        f"{relayed.published} records published."
    )
    for failure in account.failures:
        _say(f"Went on without: {failure}")


class _Progress:
    """Says every few seconds how far the work is."""

    def __init__(self) -> None:
        self._said = 0.0

    def __call__(self, account: DrainAccount) -> None:
        if time.monotonic() - self._said > _PROGRESS_SECONDS:
            self._said = time.monotonic()
            _say(f"{account.read} records, {account.rows} rows, {account.facts} facts")


def _say(sentence: str) -> None:
    click.echo(sentence, err=True)
