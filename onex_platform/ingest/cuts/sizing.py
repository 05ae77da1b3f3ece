"""How many records a cut may have, so that no task has to hold too many bytes.

Kafka tells how many records lie between two offsets, not how large they are. So a cut is tried, and
each task tells its load: bytes needed ÷ bytes allowed. A cut with a load above
one is not taken, but a smaller one instead; and the next cuts go by what was learnt.
"""

from __future__ import annotations

# Records differ: a cut that fits exactly by calculation would not fit half of the time.
_MARGIN = 0.8
# How fast cuts may grow again; the load of a small one tells little about a large one.
_GROWTH = 16


class CutSizer:
    """How many records the next cut may have."""

    def __init__(self, most_records: int) -> None:
        self._limit = most_records
        self.most_records = most_records

    def learn(self, records: int, load: float) -> None:
        """A cut of so many records was tried, and led to this load."""
        if not records:
            return
        fitting = max(1, int(_MARGIN * records / max(load, 1 / self._limit)))
        if load > 1:
            self.most_records = fitting
        elif self.most_records < self._limit:
            self.most_records = min(fitting, self.most_records * _GROWTH, self._limit)
