"""`onex dlt`: records that could not enter the log, nodes that can't be folded, and the way back.

A letter is named as `list` prints it: TOPIC/PARTITION/OFFSET.
"""

from __future__ import annotations

import base64
import getpass
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TextIO, TypeVar
from uuid import UUID

import click

from onex_platform.base.errors import ConfigurationError
from onex_platform.cli.flow_commands.shown_values import shown
from onex_platform.cli.opening import attached_platform
from onex_platform.cli.options import Duration, tenant_option
from onex_platform.context import PlatformContext
from onex_platform.domain.envelope import EnumParkReason
from onex_platform.domain.headers import PiiLevel
from onex_platform.engines.spark.session import open_session
from onex_platform.ingest.archive import registration_log
from onex_platform.ingest.letters.letter_replay import EnumReplayVerdict, Judged, preview, replay
from onex_platform.ingest.letters.parked_letters import (
    EnumLetterState,
    Letter,
    LetterFilter,
    LetterId,
    each_letter,
    purge,
)
from onex_platform.projections.fold.set_aside import SetAside, marks
from onex_platform.projections.rebuild.rebuild import open_rebuild
from onex_platform.projections.rebuild.scopes import entity_of, scope_of

_Command = TypeVar("_Command", bound=Callable[..., Any])
_ANY = "any"
_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead.")
_by_option = click.option(
    "--by", default=getpass.getuser, help="Who orders it; by default your user name."
)


def _chosen(command: _Command) -> _Command:
    """Arguments and options that say which letters are meant."""
    for decorate in (
        click.argument("letters", nargs=-1, metavar="[LETTER]..."),
        click.option("--topic", help="Only letters that came from this topic."),
        click.option(
            "--parked-for",
            type=click.Choice([reason.value for reason in EnumParkReason]),
            help="Only letters that were parked for this reason.",
        ),
        click.option(
            "--older-than", type=Duration(), help="Only letters parked longer ago: 6h, 30d."
        ),
    ):
        command = decorate(command)
    return command


_all_option = click.option("--all", "everything", is_flag=True, help="Every letter that waits.")
_state_option = click.option(
    "--state",
    type=click.Choice([_ANY, *(state.value for state in EnumLetterState)]),
    default=EnumLetterState.WAITING.value,
    show_default=True,
    help="Only letters of which this became.",
)


@click.group("dlt")
def command() -> None:
    """Read, replay and purge the log's dead letters.

    A record that can't be read is parked alone, with its bytes and the reason. It can be replayed
    once a release, a contract or a setting lets it in: it enters the log at its end. Nodes whose
    events can't be folded are listed and released here as well.

    \b
    Examples:
      onex dlt list --parked-for unknown_version
      onex dlt replay --parked-for unknown_version --preview
      onex dlt replay --parked-for unknown_version
      onex dlt purge --older-than 30d --parked-for not_json --because "load test of 3 May"
    """


@command.command("list")
@_chosen
@_state_option
@click.option("--limit", type=click.IntRange(min=1, max=10_000), default=100, show_default=True)
@_json_option
def list_command(state: str, limit: int, as_json: bool, **chosen: Any) -> None:
    """List letters in the order of their places, and the nodes that are set aside."""
    with attached_platform("postgres") as platform:
        found = list(_letters(platform, _filter(state=state, **chosen), limit))
        aside = _set_aside(platform)
    if as_json:
        _echo_json({"letters": [_outline(item) for item in found], "set_aside": aside})
        return
    for letter in found:
        click.echo(f"{letter.id}  {letter.state}  {letter.reason}: {letter.detail}")
    for mark in aside:
        click.echo(
            f"{mark['node']}  set aside  since {mark['since']} by {mark['kind']}"
            f" {mark['event_id']}: {mark['error']}"
        )
    if not found and not aside:
        click.echo("No letter is there, and nobody is set aside.")
    elif len(found) == limit:
        click.echo(f"There may be more than {limit}; raise --limit.", err=True)


@command.command("show")
@click.argument("letter")
@_json_option
def show_command(letter: str, as_json: bool) -> None:
    """Show what is kept of a LETTER, and what became of it.

    Fields that the topic's schema calls highly private are hidden; `export` has every byte.
    """
    with attached_platform("postgres") as platform:
        [found] = _named(platform, LetterId.parse(letter))
        topic, catalogue = found.id.topic, platform.catalogue
        levels = catalogue[topic].private_fields if topic in catalogue else {}
    fields = _outline(found) | _contents(found, levels)
    if as_json:
        _echo_json(fields)
        return
    for name, value in fields.items():
        if value is not None:
            click.echo(f"{name.replace('_', ' '):<16}  {value}")


@command.command("replay")
@_chosen
@_all_option
@click.option("--preview", "dry_run", is_flag=True, help="Say what would become of each.")
@_by_option
@_json_option
def replay_command(everything: bool, dry_run: bool, by: str, as_json: bool, **chosen: Any) -> None:
    """Read letters again by the rules of today; exit code 1 if one still can't be read.

    Those that can be read enter the log at its end, with the pipeline's next cut. A letter whose
    event is in the log already is noted as a duplicate. One that reports a time from before the
    ledger's memory is refused: it may be a duplicate, and nobody can tell. What was replayed before
    is left alone.
    """
    wanted = _filter(state=EnumLetterState.WAITING, **chosen)
    _require_choice(wanted, everything)
    with attached_platform("postgres") as platform:
        judging = preview if dry_run else _replayed_by(by)
        judged = [_verdict(item) for item in judging(platform, wanted, _now())]
    counts = Counter(item["verdict"] for item in judged)
    if as_json:
        _echo_json({"letters": judged, "counts": counts, "preview": dry_run})
    else:
        for item in judged:
            why = f"{item['reason']}: {item['detail']}" if item["reason"] else item["event_id"]
            click.echo(f"{item['letter']}  {item['verdict']}  {why}")
        numbers = ", ".join(f"{counts[verdict]} {verdict}" for verdict in EnumReplayVerdict)
        click.echo(f"{'Preview: ' if dry_run else ''}{numbers}.", err=True)
    sys.exit(1 if counts[EnumReplayVerdict.UNREADABLE] else 0)


@command.command("purge")
@_chosen
@_all_option
@click.option("--because", required=True, help="Why; it stays with the letters.")
@click.option("--preview", "dry_run", is_flag=True, help="Say which it would be.")
@_by_option
@click.option("--yes", is_flag=True, help="Don't ask.")
def purge_command(
    everything: bool, because: str, dry_run: bool, by: str, yes: bool, **chosen: Any
) -> None:
    """Destroy the bytes of waiting letters. Their rows stay, with who ordered it, when and why."""
    wanted = _filter(state=EnumLetterState.WAITING, **chosen)
    _require_choice(wanted, everything)
    with attached_platform("postgres") as platform:
        found = list(_letters(platform, wanted))
        for letter in found:
            click.echo(f"{'would purge' if dry_run else 'purging'}  {letter.id}  {letter.reason}")
        if dry_run or not found:
            return
        if not yes:
            click.confirm(f"Destroy the bytes of {len(found)} letters?", abort=True, err=True)
        # Only those that were shown: more may have been parked meanwhile.
        shown = LetterFilter(ids=tuple(letter.id for letter in found))
        purged = purge(platform, shown, _now(), by=by, because=because)
    click.echo(f"{purged} letters purged.", err=True)


@command.command("export")
@_chosen
@_state_option
@click.option("--output", type=click.File("w"), default="-", help="A file; by default stdout.")
def export_command(output: TextIO, state: str, **chosen: Any) -> None:
    """Write letters as JSON lines, bytes in base64."""
    with attached_platform("postgres") as platform:
        for letter in _letters(platform, _filter(state=state, **chosen)):
            line = _outline(letter) | {
                "key": _base64(letter.key),
                "value": _base64(letter.value),
                "headers": [[name, _base64(value)] for name, value in letter.headers],
            }
            output.write(json.dumps(line, default=str) + "\n")


@command.command("release")
@click.argument("node")
@tenant_option
@click.option("--preview", "dry_run", is_flag=True, help="Say whether its events can be folded.")
def release_command(node: str, tenant: str | None, dry_run: bool) -> None:
    """Bring back a NODE that is set aside, if its events can be folded now; else exit code 1.

    Its row is what the log says, as after `onex registry rebuild --node`; nothing is emitted.
    """
    with attached_platform("postgres") as platform:
        entity_id = entity_of(platform.settings, node, tenant)
        with platform.database.transaction() as cursor:
            held = marks(cursor, platform.domain, [entity_id])
        if not held:
            raise ConfigurationError(
                f"{node} is not set aside.", hint="`onex dlt list` shows who is."
            )
        is_released = _released(platform, entity_id, dry_run=dry_run)
    if not is_released:
        click.echo(f"Its events still can't be folded: {held[0]}", err=True)
        sys.exit(1)
    click.echo(f"{node} {'can be folded' if dry_run else 'goes on'}.")


def _released(platform: PlatformContext, entity_id: UUID, *, dry_run: bool) -> bool:
    """Fold a node's events anew and put the row in; whether they can be folded."""
    scope = scope_of(platform.settings, node=str(entity_id))
    with (
        open_session(platform.settings, []) as spark,
        open_rebuild(spark, registration_log(platform), scope) as rebuild,
    ):
        rebuild.catch_up()
        if rebuild.compare().raising:
            return False
        if not dry_run:
            rebuild.swap()
    return True


def _now() -> datetime:
    return datetime.now(UTC)


def _replayed_by(by: str) -> Callable[[PlatformContext, LetterFilter, datetime], Iterator[Judged]]:
    return lambda platform, wanted, now: replay(platform, wanted, now, by=by)


def _filter(
    *,
    letters: tuple[str, ...],
    topic: str | None,
    parked_for: str | None,
    older_than: timedelta | None,
    state: str,
) -> LetterFilter:
    return LetterFilter(
        ids=tuple(map(LetterId.parse, letters)) or None,
        topic=topic,
        reason=EnumParkReason(parked_for) if parked_for else None,
        older_than=older_than,
        state=None if state == _ANY else EnumLetterState(state),
    )


def _require_choice(wanted: LetterFilter, everything: bool) -> None:
    is_narrow = any((wanted.ids, wanted.topic, wanted.reason, wanted.older_than))
    if is_narrow == everything:
        raise ConfigurationError(
            "--all and a choice exclude each other." if everything else "No letter is named.",
            hint="Name letters, or give --topic, --parked-for or --older-than, or --all.",
        )


def _letters(
    platform: PlatformContext, wanted: LetterFilter, limit: int | None = None
) -> Iterator[Letter]:
    return each_letter(platform, wanted, _now(), limit)


def _named(platform: PlatformContext, place: LetterId) -> list[Letter]:
    wanted = LetterFilter(ids=(place,), state=None)
    found = list(_letters(platform, wanted))
    if not found:
        raise ConfigurationError(
            f"No letter {place} is there.", hint="`onex dlt list --state any` shows them all."
        )
    return found


def _set_aside(platform: PlatformContext) -> list[dict[str, Any]]:
    with platform.database.transaction() as cursor:
        return [_told(mark) for mark in marks(cursor, platform.domain)]


def _told(mark: SetAside) -> dict[str, Any]:
    return {
        "node": str(mark.entity_id),
        "since": mark.since.isoformat(),
        "event_id": str(mark.event_id),
        "kind": mark.kind,
        "error": mark.error,
    }


def _outline(letter: Letter) -> dict[str, Any]:
    """A letter without its bytes."""
    return {
        "letter": str(letter.id),
        "kind": letter.kind.value,
        "reason": letter.reason,
        "detail": letter.detail,
        "record_timestamp": letter.record_timestamp,
        "parked_at": letter.parked_at,
        "state": letter.state.value,
        "event_id": letter.event_id,
        "settled_at": letter.settled_at,
        "settled_by": letter.settled_by,
        "settled_because": letter.settled_because,
        "published_at": letter.published_at,
    }


def _contents(letter: Letter, levels: Mapping[str, PiiLevel]) -> dict[str, Any]:
    return {
        "key": _text(letter.key),
        "headers": ", ".join(f"{name}={_text(value)}" for name, value in letter.headers) or None,
        "value": _text(shown(letter.value, levels)),
    }


def _verdict(item: Judged) -> dict[str, Any]:
    return {
        "letter": str(item.id),
        "parked_for": item.parked_for,
        "verdict": item.verdict.value,
        "event_id": item.event_id and str(item.event_id),
        "reason": item.reason,
        "detail": item.detail,
    }


def _text(value: bytes | None) -> str | None:
    """Bytes for a terminal: what is no printable text is escaped."""
    if value is None:
        return None
    text = value.decode("utf-8", "backslashreplace")
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def _base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _echo_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, default=str))
