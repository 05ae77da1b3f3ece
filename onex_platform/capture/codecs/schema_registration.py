"""Bringing page schemas to the registry.

What holds:
- A schema that the registry refuses stops the start: pages would be written that readers of older
  ones can't tell apart from those they know.
- A registry that can't be reached stops nobody. Events are captured, and a thread goes on trying.
  A refusal that it meets is logged, and stops the next start.
- Registering is harmless to repeat: a schema that is there stays the version that it is.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from threading import Thread

from onex_platform.base.errors import ConfigurationError, InfraError, OnexError
from onex_platform.base.faults import effect
from onex_platform.base.settings import Settings
from onex_platform.base.telemetry import get_logger
from onex_platform.capture.codecs.page_schemas import MODE, STRICT_MODES, PageSchema
from onex_platform.capture.flush.retrying import RETRIED, Backoff
from onex_platform.capture.slot_config import SchemaRegistryConfig
from onex_platform.engines.schema_registry import SchemaRegistry


def open_registry(config: SchemaRegistryConfig, settings: Settings) -> SchemaRegistry:
    """The registry that the snapshotter's file names, which need not be the platform's."""
    return SchemaRegistry(settings.model_copy(update={"schemas": config.schemas_settings()}))


def register_schemas(registry: SchemaRegistry, schemas: Iterable[PageSchema]) -> None:
    """Register what pages look like; raises `ConfigurationError` if the registry says no, and one
    of `RETRIED` if it can't be asked."""
    for subject, language, text in schemas:
        try:
            if registry.mode(subject) not in STRICT_MODES:
                with effect("capture.set_mode"):
                    registry.set_mode(subject, MODE)
            with effect("capture.register_schema"):
                registry.register(subject, text, language)
        except RETRIED:
            raise
        except InfraError as error:
            raise ConfigurationError(
                f"The pages' schema was refused as a version of {subject}: {error.message}",
                hint="Run the release that wrote the newest version, or name another"
                " schema_registry.subject for this archive.",
            ) from None


def keep_registering(
    registry: SchemaRegistry, schemas: Iterable[PageSchema], backoff: Backoff
) -> Thread:
    """Try until the registry has answered, beside everything else; the thread ends with the
    process, whatever it is about to do."""
    thread = Thread(target=_keep_registering, args=(registry, list(schemas), backoff), daemon=True)
    thread.start()
    return thread


def _keep_registering(
    registry: SchemaRegistry, schemas: list[PageSchema], backoff: Backoff
) -> None:
    failures = 1
    while True:
        time.sleep(backoff.delay(failures))
        try:
            register_schemas(registry, schemas)
        except RETRIED:
            failures += 1
        except OnexError as error:
            get_logger(__name__).error("capture.schemas_refused", error=str(error))
            return
        else:
            get_logger(__name__).info("capture.schemas_registered", attempts=failures + 1)
            return
