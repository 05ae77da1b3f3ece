"""What every station's checks come to: yes or no, a sentence, and the numbers behind it."""

from __future__ import annotations

from typing import NamedTuple

Number = int | float | str


class Verdict(NamedTuple):
    """What a check found; the fields are those of Dagster's check results."""

    passed: bool
    description: str
    metadata: dict[str, Number]
