"""Who an event is about: one entity per node, however its id is spelled.

One node is the platform's own: the canary, a single node of a reserved tenant in each domain.
Whoever shows, lists, counts or judges nodes leaves out exactly this one, so nobody can hide another
behind it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from hashlib import sha1
from typing import NamedTuple
from uuid import UUID, uuid5

MAX_NODE_ID_LENGTH = 256
_UUID_DIGITS = 32  # in any spelling
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
    plain = plain_id(node_id)
    if plain is None:
        return NodeIdentity(UUID(node_id), None)
    return NodeIdentity(uuid5(NODE_NAMESPACE, f"{tenant}\x1f{plain}"), plain)


def plain_id(node_id: str) -> str | None:
    """An accepted id where it is no spelling of a UUID, else None."""
    if len(node_id) < _UUID_DIGITS:
        return node_id
    try:
        UUID(node_id)
    except ValueError:
        return node_id
    return None


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


def fact_ids(
    entity_ids: Iterable[str], epoch: int, kind: str, causes: Iterable[str]
) -> list[bytes]:
    """`fact_id` of many entities with a cause each, all in canonical spelling."""
    namespace, between = FACT_NAMESPACE.bytes, f"\x1f{epoch}\x1f{kind}\x1f"
    digests = (
        sha1(namespace + f"{entity_id}{between}{cause}".encode(), usedforsecurity=False).digest()
        for entity_id, cause in zip(entity_ids, causes, strict=True)
    )
    # What makes a digest a UUID of version 5.
    return [
        b"%b%c%c%c%b" % (d[:6], d[6] & 0x0F | 0x50, d[7], d[8] & 0x3F | 0x80, d[9:16])
        for d in digests
    ]


CANARY_TENANT = "onex-canary"
CANARY_NODE = "onex-canary"
CANARY_ID = identify_node(CANARY_NODE, CANARY_TENANT).entity_id

# For queries about nodes.
NOT_CANARY_SQL = f"entity_id <> '{CANARY_ID}'::uuid"


def identify_admitted(node_id: str, tenant: str) -> NodeIdentity:
    """The node's identity, if the tenant may have that node; raises `ValueError` if not.

    The canary's tenant has the canary alone, and nobody else has it: not even by its UUID.
    """
    identity = identify_node(node_id, tenant)
    if (identity.entity_id == CANARY_ID) != (tenant == CANARY_TENANT):
        raise ValueError(
            f"node_id={node_id[:80]!r} of tenant={tenant!r}: tenant {CANARY_TENANT} and node "
            f"{CANARY_ID} are the platform's canary; use another tenant or id"
        )
    return identity
