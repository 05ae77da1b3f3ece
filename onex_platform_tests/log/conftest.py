"""The log's tests use the archive of ingest's, in a migrated database of their own."""

from __future__ import annotations

from onex_platform_tests.ingest.conftest import (
    another_store,
    archive,
    archive_settings,
    log,
    store,
    store_settings,
)

__all__ = ["another_store", "archive", "archive_settings", "log", "store", "store_settings"]
