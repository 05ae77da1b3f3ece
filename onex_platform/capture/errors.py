"""The errors of the station's slots."""

from __future__ import annotations

from onex_platform.base.errors import OnexError


class ObjectMissingError(OnexError):
    """An object that should be there is not in the store."""


class ObjectExistsError(OnexError):
    """The key is taken by other bytes, and stored objects are never overwritten."""


class PageFormatError(OnexError):
    """Bytes that are no page, a damaged page, or a page of a newer format version."""
