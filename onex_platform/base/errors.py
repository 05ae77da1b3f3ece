"""The platform's one family of errors.

Every error says what happened in one sentence, may name the way out (`hint`), and carries a
correlation id that stands in the logs as well. Secrets are redacted when the error is made, so no
handler further up can print one by accident.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from onex_platform.base.telemetry import current_correlation_id, redact


class OnexError(Exception):
    """Base of all errors that the platform raises on purpose."""

    exit_code = 1

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        correlation_id: UUID | None = None,
        **context: Any,
    ) -> None:
        self.message = redact(message)
        self.hint = redact(hint) if hint else None
        self.correlation_id = correlation_id or current_correlation_id()
        self.context = {name: redact(str(value)) for name, value in context.items()}
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message} {self.hint}" if self.hint else self.message


class ConfigurationError(OnexError):
    """A setting, contract or command line is wrong; nothing was started."""

    exit_code = 2


class MissingTenantKeyError(ConfigurationError):
    """A tenant has no key to encrypt its private fields with: the affair of that tenant alone."""


class PrerequisiteError(OnexError):
    """The machine lacks something that the platform does not bring along (Java, disk space)."""

    exit_code = 3


class InfraError(OnexError):
    """Something outside this process failed."""

    exit_code = 4


class InfraConnectionError(InfraError):
    """A server could not be reached or refused us."""


class InfraTimeoutError(InfraError):
    """A server did not answer in time; whether it did the work is unknown."""


class InfraUnavailableError(InfraError):
    """The circuit breaker is open, or a server that should run does not."""


def interruption_behind(error: BaseException) -> BaseException | None:
    """What told this process to end, if that led to the error: whoever is interrupted in the middle
    of a query or of native code often leaves with what tidying up ran into."""
    behind: BaseException | None = error
    while isinstance(behind, Exception | GeneratorExit):
        behind = behind.__cause__ if behind.__suppress_context__ else behind.__context__
    return behind
