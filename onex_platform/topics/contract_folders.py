"""Where a topic's contract stands, from its name, and which topic a folder is about.

    onex       onex.<domain>.<entity>.<event>.vN      <domain>/evt/<entity>-<event>/vN
    namespace  <context>.<class>.<topic>.vN           <context>/<class>/<topic>/vN
    snapshot   onex.snapshot.<context>.<subject>.vN   <context>/snapshot/<subject>/vN
    legacy     node.<subject>                         node/legacy/<subject>/v0

Two dialects share the folder `evt`. The table of keys tells them apart: it knows the entities of
the onex dialect, and a namespace topic may not begin with one. So a folder means one topic.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath

from onex_platform.topics.grammar import (
    EnumTopicDialect,
    LegacyName,
    LogicalName,
    OnexName,
    SnapshotName,
    StreamName,
    broken,
    parse_logical,
)

_EVENTS = "evt"
_SNAPSHOT, _LEGACY = EnumTopicDialect.SNAPSHOT.value, EnumTopicDialect.LEGACY.value
_BEFORE_VERSIONS = "v0"

# Whether an entity of a domain is named in the onex dialect.
IsOnexEntity = Callable[[str, str], bool]


def folder_of(name: LogicalName, is_onex: IsOnexEntity) -> PurePosixPath:
    """The contract's folder, below the folder of all contracts."""
    match name:
        case OnexName(domain=domain, entity=entity, event=event, version=version):
            if not is_onex(domain, entity):
                raise broken(str(name), f"is about {domain}.{entity}, which no keying rule covers")
            return PurePosixPath(domain, _EVENTS, f"{entity}-{event}", f"v{version}")
        case SnapshotName(context=context, subject=subject, version=version):
            return PurePosixPath(context, _SNAPSHOT, subject, f"v{version}")
        case LegacyName(subject=subject):
            return PurePosixPath(name.prefix[0], _LEGACY, subject, _BEFORE_VERSIONS)
        case StreamName(context=context, stream_class=stream_class, topic=topic, version=version):
            entity = topic.partition("-")[0]
            if stream_class == _EVENTS and is_onex(context, entity):
                raise broken(
                    str(name), f"is about {context}.{entity}, an entity of the onex dialect"
                )
            return PurePosixPath(context, stream_class, topic, f"v{version}")


def name_at(folder: PurePosixPath, is_onex: IsOnexEntity) -> LogicalName:
    """The topic that a contract's folder is about; a folder that no topic has is refused."""
    if len(folder.parts) != 4:
        raise broken(str(folder), "is no folder of the form <context>/<class>/<topic>/vN")
    context, stream_class, topic, version = folder.parts
    if stream_class == _SNAPSHOT:
        text = f"onex.{_SNAPSHOT}.{context}.{topic}.{version}"
    elif stream_class == _LEGACY:
        text = f"{context}.{topic}" if version == _BEFORE_VERSIONS else str(folder)
    elif stream_class == _EVENTS and is_onex(context, topic.partition("-")[0]):
        entity, _, event = topic.partition("-")
        text = f"onex.{context}.{entity}.{event}.{version}"
    else:
        text = ".".join(folder.parts)
    name = parse_logical(text)
    if folder_of(name, is_onex) != folder:
        raise broken(str(folder), f"is not where the contract of {name} stands")
    return name
