"""Structured logs, correlation ids and the redaction of secrets.

`configure_logging` is called once by each entry point (command line, Dagster code location);
importing this module changes nothing.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal
from uuid import UUID, uuid4

_correlation_id: ContextVar[UUID | None] = ContextVar("correlation_id", default=None)

REDACTED = "***"

_SECRET_NAME = (
    r"(?:password|passwd|pwd|passphrase|secret|token|credential"
    r"|(?:api|access|private|secret|signing|account)[_-]?key)s?"
)
# The word before the sign may carry a prefix ("sasl.password", "AWS_SECRET_ACCESS_KEY"). It is
# looked at from its beginning only: from each of its letters, a long one would take for ever.
_SECRET_PAIR = re.compile(
    rf"""(?ix) (?P<name> (?<![\w.\-]) ["']? [\w.\-]* {_SECRET_NAME} ["']? ) (?P<sign> \s*[:=]\s* )
         (?P<value> "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' | [^\s,;&)}}\]]+ )"""
)
# A password may hold "/" and "@" without being escaped: everything up to the last "@" goes.
_URL_PASSWORD = re.compile(r"(?P<head>(?<![a-z0-9+.\-])[a-z0-9+.\-]+://[^\s:/@]*:)\S+(?=@)", re.I)
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[a-z0-9._~+/=\-]{8,}")
_SECRET_KEY = re.compile(rf"(?i){_SECRET_NAME}$")
# The authority of a URL, a host with its port, or an address; times and paths have neither form.
_HOST = re.compile(
    r"""(?ix) (?<=://) (?: [^\s/@]* @ )? [^\s/@:]+ (?: :\d+ )?
        | (?<![\w/.:\-]) [a-z0-9] [\w.\-]* : \d{2,5} (?![\w:])
        | (?<![\w/.:\-]) \d{1,3} (?: \. \d{1,3} ){3} (?: :\d+ )?"""
)
_HIDDEN_HOST = "<host>"


class _Hiding:
    """What this process hides beyond secrets; its entry points and its catalogue decide."""

    hosts = False
    fields: frozenset[str] = frozenset()


def hide_hosts(hide: bool) -> None:
    """Whether errors and logs leave out the names of hosts: they are nobody's business outside."""
    _Hiding.hosts = hide


def hide_fields(names: Iterable[str]) -> None:
    """Leave the values of these fields out of logs from now on: they are personal data."""
    _Hiding.fields |= frozenset(names)


def redact(text: str) -> str:
    """`text` without passwords: in URLs, in `name=value` pairs, in authorisation headers; and
    without hosts, where these are hidden."""
    text = _URL_PASSWORD.sub(rf"\g<head>{REDACTED}", text)
    text = _BEARER.sub(rf"\1 {REDACTED}", text)
    if _Hiding.hosts:
        text = _HOST.sub(_HIDDEN_HOST, text)
    return _SECRET_PAIR.sub(rf"\g<name>\g<sign>{REDACTED}", text)


def shortened(names: Sequence[Any], most: int = 10) -> str:
    """The first of many names, and how many more there are."""
    more = len(names) - most
    return ", ".join(map(str, names[:most])) + (f" and {more} more" if more > 0 else "")


def redact_value(name: str, value: Any) -> Any:
    """`value` of a field called `name`, with every secret in it hidden, however deep it sits."""
    if value is not None and (name in _Hiding.fields or _SECRET_KEY.search(name)):
        return REDACTED
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {key: redact_value(str(key), item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [redact_value(name, item) for item in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    # Renderers would print the object's repr, past every redaction: an error, a model, bytes.
    return redact(repr(value) if isinstance(value, BaseException | bytes) else str(value))


def current_correlation_id() -> UUID:
    """The correlation id of the work in progress, or a new one."""
    return _correlation_id.get() or uuid4()


@contextmanager
def correlated(correlation_id: UUID | None = None) -> Iterator[UUID]:
    """Everything logged or raised inside carries one correlation id."""
    chosen = correlation_id or current_correlation_id()
    token = _correlation_id.set(chosen)
    try:
        yield chosen
    finally:
        _correlation_id.reset(token)


def _add_correlation_id(
    _logger: Any, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    if (correlation_id := _correlation_id.get()) is not None:
        event.setdefault("correlation_id", str(correlation_id))
    return event


def _redact_event(
    _logger: Any, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    return {
        # structlog's own entries are objects that its formatter still needs.
        name: value if name.startswith("_") else redact_value(name, value)
        for name, value in event.items()
    }


def configure_logging(level: str = "INFO", style: Literal["console", "json"] = "console") -> None:
    """Send structlog's and the standard library's records to stderr, in one form."""
    import structlog

    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _add_correlation_id,
        structlog.processors.format_exc_info,
        _redact_event,
    ]
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if style == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level)),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # What these tell at INFO, the command that uses them says itself, or nobody needs to know.
    for talkative in ("yoyo", "py4j"):
        logging.getLogger(talkative).setLevel(
            logging.DEBUG if level == "DEBUG" else logging.WARNING
        )


def get_logger(name: str) -> Any:
    """A structured logger; the import is deferred so that `onex --help` stays quick."""
    import structlog

    return structlog.get_logger(name)
