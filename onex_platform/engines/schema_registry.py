"""A Confluent-compatible schema registry: subjects, their newest schema and their mode."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

from onex_platform.base.errors import ConfigurationError, InfraConnectionError, InfraError
from onex_platform.base.server_settings import reveal
from onex_platform.base.settings import Settings

_CONTENT = "application/vnd.schemaregistry.v1+json"
_HINT = "Check ONEX_SCHEMAS_URL."


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema of a subject: its version there, and its id in the whole registry."""

    schema: str
    format: str
    version: int
    id: int


class RefusedSchemaError(InfraError):
    """The registry holds the schema for incompatible with what it has."""


class SchemaRegistry:
    """One registry by its address; each call is one request."""

    def __init__(self, settings: Settings) -> None:
        if settings.schemas.url is None:
            raise ConfigurationError(
                "No schema registry is known.",
                hint="Set ONEX_SCHEMAS_URL to a Confluent-compatible registry.",
            )
        self._url = settings.schemas.url.rstrip("/")
        self._settings = settings.schemas

    def subjects(self) -> set[str]:
        return set(self._ask("GET", "/subjects"))

    def newest(self, subject: str) -> RegisteredSchema | None:
        """The newest schema of a subject; None if there is no such subject."""
        return self._version(subject, "latest")

    def versions(self, subject: str) -> Iterator[RegisteredSchema]:
        """The schemas of a subject, the newest first; each is asked for when it is wanted."""
        newest = self.newest(subject)
        if newest is None:
            return
        yield newest
        numbers = self._ask("GET", f"/subjects/{_quoted(subject)}/versions", missing=())
        for number in sorted(numbers, reverse=True):
            found = self._version(subject, number) if number < newest.version else None
            if found is not None:
                yield found

    def _version(self, subject: str, number: int | str) -> RegisteredSchema | None:
        path = f"/subjects/{_quoted(subject)}/versions/{number}"
        found = self._ask("GET", path, missing=None)
        if found is None:
            return None
        kind = found.get("schemaType") or "AVRO"
        return RegisteredSchema(found["schema"], kind, found["version"], found["id"])

    def register(self, subject: str, schema: str, format: str) -> None:
        """Add a schema; one that is there already stays the same version."""
        body = {"schema": schema, "schemaType": format}
        self._ask("POST", f"/subjects/{_quoted(subject)}/versions", body)

    def delete(self, subject: str) -> None:
        """Take a subject with all its versions away; one that is gone already is no error."""
        self._ask("DELETE", f"/subjects/{_quoted(subject)}", missing=None)

    def is_compatible(self, subject: str, schema: str, format: str) -> bool:
        """What the registry says of a schema, under the subject's mode."""
        body = {"schema": schema, "schemaType": format}
        path = f"/compatibility/subjects/{_quoted(subject)}/versions/latest"
        return bool(self._ask("POST", path, body)["is_compatible"])

    def mode(self, subject: str) -> str | None:
        """The compatibility that is set for the subject itself, not the registry's default."""
        found = self._ask("GET", f"/config/{_quoted(subject)}", missing=None)
        return None if found is None else found["compatibilityLevel"]

    def set_mode(self, subject: str, mode: str) -> None:
        """Set the subject's compatibility; who sets the same at the same moment is no hindrance,
        though a registry may refuse the second one."""
        try:
            self._ask("PUT", f"/config/{_quoted(subject)}", {"compatibility": mode})
        except RefusedSchemaError:
            if self.mode(subject) != mode:
                raise

    def _ask(self, method: str, path: str, body: Any = None, **on: Any) -> Any:
        headers = {"Content-Type": _CONTENT, "Accept": _CONTENT}
        if self._settings.username is not None:
            login = f"{self._settings.username}:{reveal(self._settings.password) or ''}"
            headers["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
        data = None if body is None else json.dumps(body).encode()
        request = Request(f"{self._url}{path}", data, headers, method=method)  # noqa: S310
        try:
            with urlopen(request, timeout=self._settings.timeout_seconds) as answer:  # noqa: S310
                return json.load(answer)
        except HTTPError as error:
            if error.code == HTTPStatus.NOT_FOUND and "missing" in on:
                return on["missing"]
            reason = error.read().decode(errors="replace")[:500]
            raise _kind_of(error.code)(
                f"The schema registry at {self._url} refused {method} {path}: {reason}."
            ) from None
        except ValueError:
            raise InfraError(
                f"{self._url} is no schema registry: it answers {path} with something that is not"
                " JSON.",
                hint=_HINT,
            ) from None
        except (OSError, HTTPException) as error:
            raise InfraConnectionError(
                f"The schema registry at {self._url} can't be reached: {error}.", hint=_HINT
            ) from error


def _kind_of(code: int) -> type[InfraError]:
    """A registry that fails may work the next time; one that says no will say it again."""
    if code == HTTPStatus.CONFLICT:
        return RefusedSchemaError
    if code >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return InfraConnectionError
    return InfraError


def _quoted(subject: str) -> str:
    return quote(subject, safe="")
