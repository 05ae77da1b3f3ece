"""What the log must keep: segments with events that are neither stored nor relayed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from onex_platform.capture.flush.page_making import Page
from onex_platform.capture.wal.commit import WriteAheadLog


class Retention:
    """Counts, per segment, what still needs it. Segments go oldest first, because a later one may
    say that a page of an earlier one is stored."""

    def __init__(self) -> None:
        self._needed: Counter[int] = Counter()
        self._stored: dict[str, int] = {}  # stored pages by the segment that holds their cut

    def need(self, segment: int) -> None:
        self._needed[segment] += 1

    def release(self, segments: Mapping[int, int] | Iterable[int]) -> None:
        """So many events of these segments need them no more."""
        self._needed.subtract(segments)

    def page_stored(self, page: Page) -> None:
        """Remember the page while the log still has its cut."""
        if page.cut_segment is not None:
            self._stored[page.info.page_id] = page.cut_segment

    def stored_pages(self, log: WriteAheadLog) -> list[str]:
        """The stored pages whose cuts the log still has; a recovery must not write them again."""
        oldest = min(log.segments, default=0)
        self._stored = {page: cut for page, cut in self._stored.items() if cut >= oldest}
        return list(self._stored)

    def releasable(self, log: WriteAheadLog) -> list[int]:
        """The oldest segments that nothing needs; the one being written is not among them."""
        free: list[int] = []
        for number in log.segments:
            if self._needed[number] > 0 or number == log.current_segment:
                break
            free.append(number)
        return free
