"""Subjects of the schema registry: what it has of those that contracts ask for; pinned schemas."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from onex_platform.base.settings import Settings
from onex_platform.engines.schema_registry import RegisteredSchema, SchemaRegistry
from onex_platform.governance.state import Subject
from onex_platform.topics.schemas import SchemaError, schema_of


@dataclass(frozen=True)
class PinnedSchema:
    """Where the registry keeps a contract's schema; readers ask for it and not for the newest."""

    subject: str
    version: int
    id: int


def observe_subjects(
    settings: Settings, wanted: Mapping[str, Subject] | None
) -> dict[str, Subject] | None:
    """Those of the wanted subjects that the registry has; None where no registry is known."""
    if settings.schemas.url is None or wanted is None:
        return None
    registry = SchemaRegistry(settings)
    found = {
        name: _observed(registry, name, wanted[name])
        for name in sorted(registry.subjects() & wanted.keys())
    }
    return {name: subject for name, subject in found.items() if subject is not None}


def foreign_subjects(settings: Settings, wanted: Collection[str]) -> set[str]:
    """Subjects of the registry that no contract asks for."""
    if settings.schemas.url is None:
        return set()
    return SchemaRegistry(settings).subjects() - set(wanted)


def pinned_schemas(settings: Settings, wanted: Mapping[str, Subject]) -> list[PinnedSchema]:
    """Version and id of every contract's schema that the registry has."""
    registry = SchemaRegistry(settings)
    found = []
    for name in sorted(registry.subjects() & wanted.keys()):
        pin, _ = _pinned(registry, name, wanted[name])
        if pin is not None:
            found.append(pin)
    return found


def _observed(registry: SchemaRegistry, name: str, wanted: Subject) -> Subject | None:
    mode = registry.mode(name)
    pin, newer = _pinned(registry, name, wanted)
    if pin is None and not newer:
        return None  # deleted since it was listed
    if pin is None:
        return Subject(newer[-1].schema, newer[-1].format, mode)
    # A registry may lay a schema out anew: the same schema has the text that we know.
    return Subject(wanted.schema, wanted.format, mode, tuple(found.version for found in newer))


def _pinned(
    registry: SchemaRegistry, name: str, wanted: Subject
) -> tuple[PinnedSchema | None, list[RegisteredSchema]]:
    """Where the contract's schema is, and what is newer; the newest version is the last."""
    newer: list[RegisteredSchema] = []
    for found in registry.versions(name):
        if _is_same(found, wanted):
            return PinnedSchema(name, found.version, found.id), newer
        newer.insert(0, found)
    return None, newer


def _is_same(found: RegisteredSchema, wanted: Subject) -> bool:
    try:
        return schema_of(wanted.format, wanted.schema).is_same(
            schema_of(found.format, found.schema)
        )
    except SchemaError:  # something that no contract could hold, such as a schema in parts
        return False
