"""Folders of keys of a test's own."""

from __future__ import annotations

from pathlib import Path

from onex_platform.base.settings import RecordsSettings, Settings
from onex_platform.records.key_folder import SIGNING, TENANTS, KeyFolder


def with_keys(folder: Path, settings: Settings | None = None) -> Settings:
    """Settings whose keys lie below the folder."""
    records = RecordsSettings(keys=folder / "keys")
    return (settings or Settings()).model_copy(update={"records": records})


def filled(settings: Settings, tenants: tuple[str, ...] = (), actors: tuple[str, ...] = ()) -> None:
    """Make the master key and some others."""
    keys = KeyFolder(settings)
    keys.make_master()
    for tenant in tenants:
        keys.make(TENANTS, tenant)
    for actor in actors:
        keys.make(SIGNING, actor)
