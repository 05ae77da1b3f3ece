"""An archive of the platform's own topics, opened as a program of ours opens it."""

from __future__ import annotations

from contextlib import AbstractContextManager

from onex_platform.base.settings import Settings
from onex_platform.domain.identity import REGISTRATION_DOMAIN
from onex_platform.ingest import archive
from onex_platform.ingest.archive import PageArchive
from onex_platform.topics.catalogue import load_catalogue


def open_archive(
    settings: Settings, domain: str = REGISTRATION_DOMAIN
) -> AbstractContextManager[PageArchive]:
    return archive.open_archive(settings, load_catalogue(), domain)
