"""Kinds of values in contracts and policy, and how a wrong one is told."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError

from onex_platform.topics.documents import Route


def _iso_duration(value: Any) -> Any:
    if not (isinstance(value, str) and value.startswith("P")):
        raise ValueError("expected an ISO 8601 duration, such as P7D or PT1H")
    return value


def _unlimited_is_none(value: Any) -> Any:
    return None if value == "unlimited" else _iso_duration(value)


Duration = Annotated[timedelta, Field(gt=timedelta()), BeforeValidator(_iso_duration)]
Retention = Annotated[
    timedelta | None,
    Field(gt=timedelta()),
    BeforeValidator(_unlimited_is_none),
    PlainSerializer(lambda kept: "unlimited" if kept is None else kept, when_used="json"),
]


class Part(BaseModel):
    """Base of everything that is read from a file."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class FieldDefect(NamedTuple):
    """A field that is wrong: the way to it, and the sentence with the value."""

    route: Route
    message: str


def explain(error: ValidationError) -> Iterator[FieldDefect]:
    """Each problem with the field, the value that was found and what is allowed."""
    for problem in error.errors(include_url=False):
        route: Route = problem["loc"]
        name = ".".join(map(str, route))
        message = problem["msg"].removeprefix("Value error, ")
        value = problem.get("input")
        if problem["type"] == "missing":
            yield FieldDefect(route, f"{name} is missing")
        elif name and not isinstance(value, dict):
            shown = str(value) if isinstance(value, timedelta) else repr(value)
            yield FieldDefect(route, f"{name}={shown}: {message}")
        else:  # a rule about several fields, which names them itself
            yield FieldDefect(route, f"{name}: {message}" if name else message)
