"""Who an event is about: one entity per node, however its id is spelled."""

from __future__ import annotations

import unicodedata
from typing import NamedTuple
from uuid import UUID, uuid5

MAX_NODE_ID_LENGTH = 256
REGISTRATION_DOMAIN = "registration"

# Fixed for ever: changing either would give every plain-text node and every fact a new identity.
NODE_NAMESPACE = UUID("6f1a3a52-5f0b-5c8e-9a53-8f2f6c1d7e10")
FACT_NAMESPACE = UUID("a0c7d2be-4d1e-5b6f-8c33-1e9b7f40d2c5")


class EntityKey(NamedTuple):
    """What a row, an order of events and a lock belong to."""

    domain: str
    entity_id: UUID


class NodeIdentity(NamedTuple):
    """A node's UUID, and its original id where that was not a UUID already."""

    entity_id: UUID
    node_name: str | None


def identify_node(node_id: str, tenant: str) -> NodeIdentity:
    """Map any accepted spelling of a node id to its entity.

    Braces, `urn:uuid:` and upper case are spellings of one UUID. Any other text names a node within
    its tenant, so that two tenants may use the same plain id. Raises `ValueError` with the reason.
    """
    if not node_id.strip():
        raise ValueError("node_id is empty; a node needs an id of 1 to 256 characters")
    if len(node_id) > MAX_NODE_ID_LENGTH:
        raise ValueError(
            f"node_id has {len(node_id)} characters; at most {MAX_NODE_ID_LENGTH} are allowed"
        )
    # Printable text, the usual case, holds no control characters and needs no closer look.
    if not node_id.isprintable() and any(
        unicodedata.category(character) in ("Cc", "Cs") for character in node_id
    ):
        raise ValueError(f"node_id {node_id!r} holds control characters; use printable text")
    try:
        return NodeIdentity(UUID(node_id), None)
    except ValueError:
        return NodeIdentity(uuid5(NODE_NAMESPACE, f"{tenant}\x1f{node_id}"), node_id)


def node_id_of(entity_id: UUID, node_name: str | None, tenant: str) -> str:
    """An id by which a node knows itself: its plain text if that is known, else its UUID.

    A row's name may be one that the node chose; then it does not lead back to the entity.
    """
    if node_name is not None:
        try:
            if identify_node(node_name, tenant).entity_id == entity_id:
                return node_name
        except ValueError:
            pass
    return str(entity_id)


def fact_id(entity_id: UUID, epoch: int, kind: str, cause: str) -> UUID:
    """The id of a fact that the platform emits: the same decision always has the same id."""
    return uuid5(FACT_NAMESPACE, f"{entity_id}\x1f{epoch}\x1f{kind}\x1f{cause}")
