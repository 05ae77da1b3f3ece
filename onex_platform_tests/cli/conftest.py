"""Commands are tested on the projections' migrated database, and on a log beside it."""

from __future__ import annotations

from onex_platform_tests.ingest.conftest import log
from onex_platform_tests.projections.conftest import (
    another_store,
    archive,
    log_settings,
    store,
    store_settings,
)

__all__ = ["another_store", "archive", "log", "log_settings", "store", "store_settings"]
