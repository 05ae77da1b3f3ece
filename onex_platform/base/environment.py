"""Settings as environment variables: their names, their source, and errors that name them.

The settings themselves stand in `onex_platform.base.settings`; these functions take its model as an
argument. Nothing else in the package reads `os.environ`.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args
from urllib.parse import urlsplit

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic.fields import FieldInfo

from onex_platform.base.errors import ConfigurationError
from onex_platform.base.telemetry import REDACTED, redact

PREFIX = "ONEX_"
ENV_FILE = Path(".env")
_KAFKA_PORT = 9092
_ALIKE = 0.65  # PARTITIONS is like PARTITION_COUNT, BUCKET and INTERVAL are like nothing
WHERE_LISTED = "`onex settings --help` lists every variable."


@dataclass(frozen=True)
class EffectiveValue:
    """One row of `onex settings`: what is in force, and who said so."""

    variable: str
    value: str
    source: str
    description: str


def effective_values(settings: BaseModel) -> list[EffectiveValue]:
    """Every setting with its value, secrets hidden, and the place it came from."""
    in_environment, in_file = _names(os.environ), _dotenv_names()
    rows = []
    for variable, value, description in _leaves(settings):
        if variable in in_environment:
            source = "environment"
        elif variable in in_file:
            source = str(ENV_FILE)
        else:
            source = "default"
        rows.append(EffectiveValue(variable, _show(value), source, description))
    return rows


def describe_variables(model: type[BaseModel]) -> list[tuple[str, str]]:
    """Every variable with what it is for; needs no valid environment."""
    return [(variable, text) for variable, _, text in _leaves(model.model_construct())]


def refuse_unknown_variables(model: type[BaseModel]) -> None:
    """A misspelled variable would silently leave its default in force; it is an error instead."""
    known = [variable for variable, _ in describe_variables(model)]
    for unknown in sorted((_names(os.environ) | _dotenv_names()) - set(known)):
        near = difflib.get_close_matches(unknown, known, n=1)
        raise ConfigurationError(
            f"{unknown} is not a setting.",
            hint=f"Did you mean {near[0]}?" if near else WHERE_LISTED,
        )


def explain(error: ValidationError, model: type[BaseModel]) -> Iterator[str]:
    """Each problem with its variable, the value that was found and what is allowed."""
    for problem in error.errors(include_url=False):
        path = [str(part) for part in problem["loc"]]
        message = problem["msg"].removeprefix("Value error, ")
        field = _field(model, path)
        if field is None:  # a rule about several variables, which names them itself
            yield message
            continue
        secret = SecretStr in (field.annotation, *get_args(field.annotation))
        value = problem.get("input")
        shown = _show(SecretStr(str(value)) if secret else value)
        yield f"{PREFIX}{'_'.join(path).upper()}={shown!r}: {message}"


def path_of(variable: str) -> Path | None:
    """The path in a variable that belongs to others, such as JAVA_HOME; None if it is not set."""
    value = os.environ.get(variable)
    return Path(value) if value else None


def foreign_variables(prefix: str, known: Collection[str]) -> dict[str, str]:
    """Variables that a specification names, not we; the environment wins over the file.

    Others may use the prefix too, so only a name that looks like a misspelled one is refused.
    """
    from dotenv import dotenv_values

    found = {**dotenv_values(ENV_FILE), **os.environ}
    ours = {name: value for name, value in found.items() if name in known and value}
    endings = {name.removeprefix(prefix): name for name in known}
    for name in sorted(found.keys() - set(known)):
        if name.startswith(prefix) and found[name]:
            ending = name.removeprefix(prefix)
            for near in difflib.get_close_matches(ending, endings, n=1, cutoff=_ALIKE):
                raise ConfigurationError(
                    f"{name} is not a setting.",
                    hint=f"Did you mean {endings[near]}? If it is somebody else's, unset it here.",
                )
    return ours


def host_ports(servers: str) -> list[tuple[str, int]]:
    """Brokers' addresses, `host:port,…`, as pairs; a port that is left out is Kafka's own."""
    pairs = []
    for server in servers.split(","):
        try:
            address = urlsplit(f"//{server.strip()}")
            if not address.hostname or address.path or address.username is not None:
                raise ValueError
            pairs.append((address.hostname, address.port or _KAFKA_PORT))
        except ValueError:
            raise ValueError(
                f"{server.strip()!r} is not an address; expected host:port,host:port"
            ) from None
    return pairs


def child_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """This process's environment with `variables` on top, for a process that it starts."""
    return {**os.environ, **variables}


def hand_to_children(variables: Mapping[str, str]) -> None:
    """Put variables into the environment of every process that this one starts from now on."""
    os.environ.update(variables)


def inherited(variable: str) -> str | None:
    """What `hand_to_children` of this process, or of one above it, has put there."""
    return os.environ.get(variable)


def _field(model: type[BaseModel], path: list[str]) -> FieldInfo | None:
    """The setting at `path`; None if that is a whole group."""
    for name in path:
        field = model.model_fields[name]
        if not (isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)):
            return field
        model = field.annotation
    return None


def _leaves(settings: BaseModel, prefix: str = PREFIX) -> Iterator[tuple[str, Any, str]]:
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        if isinstance(value, BaseModel):
            yield from _leaves(value, f"{prefix}{name.upper()}_")
        else:
            yield f"{prefix}{name.upper()}", value, field.description or ""


def _show(value: Any) -> str:
    if value is None:
        return ""
    return _show_secret(value) if isinstance(value, SecretStr) else redact(str(value))


def _show_secret(secret: SecretStr) -> str:
    """An address without its password, as far as it surely is one; of everything else, nothing."""
    text = secret.get_secret_value()
    return redact(text) if re.match(r"[a-z0-9+]+://\S*@", text) else REDACTED


def _names(variables: Mapping[str, str | None]) -> set[str]:
    """Our variables; one that is set to nothing counts as unset, as it does for `Settings`."""
    return {
        name.upper()
        for name, value in variables.items()
        if value and name.upper().startswith(PREFIX)
    }


def _dotenv_names() -> set[str]:
    from dotenv import dotenv_values

    return _names(dotenv_values(ENV_FILE))
