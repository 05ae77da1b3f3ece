"""How commands reach the platform: this process's settings, attached to the embedded stack."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from onex_platform.base.settings import load_settings
from onex_platform.context import PlatformContext, open_platform
from onex_platform.stack import attach
from onex_platform.topics.catalogue import load_catalogue


@contextmanager
def attached_platform(*services: str) -> Iterator[PlatformContext]:
    """The platform for the block; of the services that are named, the embedded ones are found."""
    with open_platform(attach(load_settings(), services=services), load_catalogue()) as platform:
        yield platform
