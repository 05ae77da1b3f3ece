"""What a snapshot says, as a digest: two texts that say the same have the same, however spelled."""

from __future__ import annotations

import hashlib

from pydantic import ValidationError

from onex_platform.domain.projection import ModelRegistrationSnapshot

NO_SNAPSHOT = b""  # the digest of no row
_DIGEST_BYTES = 16


def digest_of(text: bytes | str) -> bytes:
    """Of everything but the time of publication; a text that is no snapshot equals no other."""
    try:
        snapshot = ModelRegistrationSnapshot.model_validate_json(text)
    except ValidationError:
        return NO_SNAPSHOT
    said = snapshot.model_dump_json(exclude={"snapshot_created_at"})
    return hashlib.blake2b(said.encode(), digest_size=_DIGEST_BYTES).digest()
