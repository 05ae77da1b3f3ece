"""What a person at a screen may see of a record's value."""

from __future__ import annotations

import json
from collections.abc import Mapping

from onex_platform.domain.headers import PiiLevel


def shown(value: bytes | None, levels: Mapping[str, PiiLevel]) -> bytes | None:
    """A value of a topic whose fields have these levels, without those that are high.

    A value that is no JSON object has no fields: whoever looks for its fault sees it as it is.
    """
    if value is None or not levels:
        return value
    try:
        document = json.loads(value)
    except (ValueError, RecursionError):
        return value
    if not isinstance(document, dict):
        return value
    # Tink takes a while to load, and few topics have private fields.
    from onex_platform.records.privacy import EnumAudience, redacted

    hidden = redacted(document, levels, EnumAudience.SCREEN)
    return json.dumps(hidden, ensure_ascii=False).encode(errors="backslashreplace")
