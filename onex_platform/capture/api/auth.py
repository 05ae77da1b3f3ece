"""Who writes: a token stands for a tenant. Without tokens there is one tenant and no question."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Sequence
from hashlib import sha256

from onex_platform.base.errors import OnexError
from onex_platform.capture.config import TokenConfig
from onex_platform.capture.flush.keys import DEFAULT_TENANT

TENANT_HEADER = "x-onex-tenant"


class UnauthenticatedError(OnexError):
    """There is no token, or nobody's."""


class ForbiddenError(OnexError):
    """The token is good, but not for this writer or tenant."""


class Authority:
    """Tells the tenant of a request, or refuses it."""

    def __init__(self, tokens: Sequence[TokenConfig]) -> None:
        self._tokens = {
            sha256(token.token.get_secret_value().encode()).digest(): token for token in tokens
        }

    def tenant(self, metadata: Iterable[tuple[str, str | bytes]], writer_id: str) -> str:
        """The tenant that this caller writes for, if it may write as that writer."""
        if not self._tokens:
            return DEFAULT_TENANT
        headers = {name: value for name, value in metadata if isinstance(value, str)}
        token = self._token(headers.get("authorization", ""))
        claimed = headers.get(TENANT_HEADER, token.tenant)
        if claimed != token.tenant:
            raise ForbiddenError(f"This token does not stand for the tenant {claimed!r}.")
        if not writer_id.startswith(token.writers):
            raise ForbiddenError(
                f"This token may not write as {writer_id!r}.",
                hint=f"Its writers begin with {', '.join(map(repr, token.writers))}.",
            )
        return token.tenant

    def _token(self, header: str) -> TokenConfig:
        scheme, _, value = header.partition(" ")
        digest = sha256(value.encode()).digest()
        found = None
        for known, token in self._tokens.items():
            if hmac.compare_digest(known, digest):
                found = token
        if scheme.lower() != "bearer" or found is None:
            raise UnauthenticatedError(
                "The request has no valid token.",
                hint="Send the metadata `authorization: Bearer TOKEN`.",
            )
        return found
