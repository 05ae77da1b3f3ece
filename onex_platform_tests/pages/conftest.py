"""The pages' tests use the projections' migrated database and store."""

from onex_platform_tests.projections.conftest import another_store, store, store_settings

__all__ = ["another_store", "store", "store_settings"]
