"""What a handler raises to say what kind of failure it met; any other error is tried again."""

from __future__ import annotations

from onex_platform.base.errors import InfraError, OnexError


class PermanentError(OnexError):
    """No later attempt can succeed: the record becomes a dead letter without further ones."""


class OutageError(InfraError):
    """The handler's own server is away: nothing is handled for a while, and no attempt counts."""
