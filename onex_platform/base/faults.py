"""Crash points: where a test can let an accident happen, to see what the next run makes of it.

In production `effect` only marks where something outside this process changes. All points stand in
one table, so that a crash test, or whoever breaks a stack on purpose, can list them.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from onex_platform.base.errors import ConfigurationError


class CrashPoint(NamedTuple):
    """An effect by name: the station whose code has it, and what changes there."""

    name: str
    station: str
    effect: str


_POINTS = {
    name: CrashPoint(name, station, effect)
    for name, station, effect in (
        ("leases.claim", "engines", "A run's claim to a lease is entered."),
        ("leases.take", "engines", "A claimed lease is taken."),
        ("leases.end", "engines", "A lease is given back."),
        ("signals.send", "topics", "Signals of the platform itself are sent."),
        ("keys.write", "records", "A key file takes its place."),
        ("keys.destroy", "records", "A tenant's key is deleted."),
        ("governance.create_topic", "governance", "A topic is created."),
        ("governance.set_topic", "governance", "A topic's setting is changed."),
        ("governance.delete_topic", "governance", "A topic whose contract has ended is deleted."),
        ("governance.grant", "governance", "An account gets a right."),
        ("governance.revoke", "governance", "A right is taken away."),
        ("governance.set_quota", "governance", "An account's quota is set."),
        ("governance.set_password", "governance", "An account gets a password."),
        ("governance.register_subject", "governance", "A schema is registered."),
        ("governance.set_mode", "governance", "A subject's compatibility mode is set."),
        ("migration.begin_change", "migration", "A topic's change of phase is noted."),
        ("migration.enter_phase", "migration", "A topic enters a phase of its move."),
        ("migration.begin_mirror", "migration", "A mirror is set to its beginning."),
        ("migration.mirror_send", "migration", "Copies of events are sent to the other topic."),
        ("migration.mirror_advance", "migration", "The mirror notes how far it has copied."),
        ("migration.dual_send", "migration", "Events are sent to one of two topics."),
        ("migration.set_offsets", "migration", "A group is set to its place on another topic."),
        ("migration.note_handover", "migration", "A group is noted as handed over, or back."),
        ("migration.deny_write", "migration", "Nobody may write a frozen topic any more."),
        ("migration.allow_write", "migration", "A frozen topic may be written again."),
        ("migration.retire_name", "migration", "A topic's name is kept from use for ever."),
        ("migration.delete_source", "migration", "A topic that has moved is deleted."),
        ("migration.remove_target", "migration", "A target that nobody used is deleted."),
        ("ingest.write_pages", "ingest", "Tasks write the pages of a cut to the store."),
        ("ingest.commit_cut", "ingest", "A cut enters the log: pages, offsets, positions."),
        ("ingest.drop_pages", "ingest", "The pages of a cut that was given up are deleted."),
        ("letters.submit", "ingest", "Dead letters that can be read now enter the inbox."),
        ("letters.send", "ingest", "Dead letters are sent to the topics of their sources."),
        ("letters.mark", "ingest", "Dead letters that were sent are noted as published."),
        ("letters.follow", "ingest", "Dead letters of handlers, and requests, are noted."),
        ("letters.settle", "ingest", "Handlers' letters are noted as replayed or released."),
        ("letters.report", "ingest", "What is to be known of dead letters is published."),
        ("letters.purge", "ingest", "The bytes of dead letters are destroyed."),
        ("compact.write_pages", "log", "A task writes merged pages to the store."),
        ("compact.replace_pages", "log", "Merged pages take the place of the old ones."),
        ("sweep.delete_files", "log", "Files of replaced pages are deleted."),
        ("sweep.forget_pages", "log", "Replaced pages are removed from the index."),
        ("wal.write", "capture", "Records that wait are written to the segment."),
        ("wal.sync", "capture", "What was written is synced to disk."),
        ("wal.roll", "capture", "A full segment is sealed, and the next one is made."),
        ("wal.release", "capture", "A segment goes whose records are all in pages."),
        ("checkpoint.write", "capture", "Writers' sequences and known ids are written down."),
        ("page.put", "capture", "A page of captured events is stored."),
        ("index.publish", "capture", "A stored page is entered into the index."),
        ("index.queue", "capture", "A page that the index did not take is queued."),
        ("index.unqueue", "capture", "A queued page that the index took leaves the queue."),
        ("dead_letter.add", "capture", "A page that the store did not take is set down."),
        ("capture.write_merged", "capture", "A merged page is stored beside the old ones."),
        ("capture.replace_pages", "capture", "A merged page takes the place of the old ones."),
        ("capture.rebuild_index", "capture", "Reconciliation enters pages that no index names."),
        ("capture.remove_page", "capture", "Reconciliation deletes a file that no index needs."),
        ("capture.set_mode", "capture", "A page schema's compatibility mode is set."),
        ("capture.register_schema", "capture", "The schema of pages is registered."),
        ("relay.send", "capture", "Captured registration events are sent to Kafka."),
        ("relay.advance", "capture", "The relay notes how far it has sent."),
        ("reduce.hand_over", "projections", "Tasks stage what they folded."),
        ("reduce.commit_batch", "projections", "A folded batch enters the projection."),
        ("set_aside.mark", "projections", "Nodes whose events can't be folded are marked."),
        ("set_aside.alert", "projections", "Marked nodes are told of, as events."),
        ("set_aside.mark_alert", "projections", "Marked nodes are noted as told of."),
        ("rebuild.begin", "projections", "A rebuild is entered, with an empty side table."),
        ("rebuild.fold", "projections", "Tasks fold the log into the side table."),
        ("rebuild.catch_up", "projections", "The side table catches up with the live rows."),
        ("rebuild.last_catch_up", "projections", "It does so again, with the fold's lock held."),
        ("rebuild.write_rows", "projections", "The side table's rows become the live ones."),
        ("rebuild.release", "projections", "Nodes that fold again are no longer set aside."),
        ("rebuild.swap", "projections", "The swap is committed."),
        ("rebuild.discard", "projections", "A rebuild and its side table are removed."),
        ("history.write_files", "projections", "The files of an hour's states are written."),
        ("history.commit_hour", "projections", "An hour's new files take the old ones' place."),
        ("history.delete_files", "projections", "Files that no hour names are deleted."),
        ("deadlines.watch", "deadlines", "The scan notes since when it watches the clock."),
        ("deadlines.in_vain", "deadlines", "A scan that could not see the input is noted."),
        ("deadlines.declare", "deadlines", "Timeout facts enter the inbox."),
        ("deadlines.close", "deadlines", "Holds are opened, counted and closed."),
        ("deadlines.override", "deadlines", "An operator's order to expire is entered."),
        ("expiry_hold.alert", "deadlines", "Holds are told of, as events."),
        ("deadlines.mark_alert", "deadlines", "Holds are noted as told of."),
        ("snapshots.send", "snapshots", "Snapshots and tombstones are sent."),
        ("snapshots.mark", "snapshots", "Entries of snapshots that were sent leave the outbox."),
        ("snapshots.queue_repairs", "snapshots", "The sweep queues what the topic lacks."),
        ("events.send", "snapshots", "The registry's own events are sent."),
        ("events.mark", "snapshots", "Entries of events that were sent leave the outbox."),
        ("held_publication.alert", "snapshots", "Nodes with a refused event are told of."),
        ("held_publication.mark_alert", "snapshots", "Such nodes are noted as told of."),
        ("alerts.advance", "health", "A measurement is kept, and alerts follow it."),
        ("alerts.tell", "health", "Alerts that were raised, rose or ended are told of."),
        ("alerts.mark_told", "health", "Such alerts are noted as told of."),
        ("alerts.silence", "health", "An operator's order not to be told is entered."),
        ("alerts.unsilence", "health", "Such an order is lifted."),
        ("health.report", "health", "What was measured is published."),
        ("introspection.ask", "health", "Requests of nodes to introspect enter the inbox."),
        ("delivery.append", "delivery", "Entries of waiting records are sent to rty."),
        ("delivery.bury", "delivery", "Records that no attempt could handle are sent to dlt."),
        ("delivery.revive", "delivery", "Letters of a dead key are taken to wait again."),
        ("delivery.commit", "delivery", "Positions in source and rty are committed."),
        ("delivery.request", "delivery", "Operators' requests are sent to rty."),
        ("delivery.beat", "delivery", "A sign of life is sent."),
        ("canaries.begin", "health", "A life of the canary begins in the book."),
        ("canaries.say", "health", "The canary sends what a node says."),
        ("canaries.note", "health", "How far a life of the canary has come is noted."),
        ("canaries.sample", "health", "A sample is sent to a topic."),
        ("canaries.note_sample", "health", "A sample is noted as sent."),
        ("canaries.note_groups", "health", "How far groups have read past samples is noted."),
        ("canaries.note_beats", "health", "Who has given signs of life is noted."),
        ("canaries.probe", "health", "A probe is sent to the canary reader."),
        ("canaries.note_probe", "health", "A probe is noted as sent."),
        ("canaries.note_read", "health", "A probe is noted as read back."),
        ("canaries.alert", "health", "What the canaries found is told of, as events."),
        ("canaries.mark_told", "health", "What was found is noted as told of."),
        ("delivery.alert", "delivery", "Stopped lanes are told of, as events."),
    )
}


def points() -> tuple[CrashPoint, ...]:
    """All crash points, in the order of the data."""
    return tuple(_POINTS.values())


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


_armed: dict[str, Callable[[], None]] = {}


def arm(moment: str, accident: Callable[[], None] = _die) -> None:
    """Let an accident happen, once, at `before:NAME` or `after:NAME`; by default this process dies,
    at once and by SIGKILL."""
    when, _, name = moment.partition(":")
    if when not in ("before", "after"):
        raise ConfigurationError(f"moment={moment!r} is neither before:NAME nor after:NAME.")
    _require_known(name)
    _armed[moment] = accident


@contextmanager
def effect(name: str) -> Iterator[None]:
    """Mark an effect by the name of its crash point, which a test can arm."""
    _require_known(name)
    _pass(f"before:{name}")
    yield
    _pass(f"after:{name}")


def _require_known(name: str) -> None:
    if name not in _POINTS:
        raise ConfigurationError(
            f"name={name!r} is no crash point.",
            hint="onex_platform.base.faults.points() lists them; enter a new one there.",
        )


def _pass(moment: str) -> None:
    if accident := _armed.pop(moment, None):
        accident()
