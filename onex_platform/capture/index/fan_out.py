"""Several indexes as one: the first answers, the others are told the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from onex_platform.base.errors import OnexError
from onex_platform.capture.captured_events import PageEntry
from onex_platform.capture.slots import PageIndex, PageQuery

_Answer = TypeVar("_Answer")


class FanOutIndex:
    """Every change goes to all. If one of them fails the others still hear of it, and the failure
    is raised after that: whoever publishes tries again, and what is known already stays."""

    def __init__(self, primary: PageIndex, secondaries: Sequence[PageIndex]) -> None:
        self._primary = primary
        self._all = (primary, *secondaries)

    @property
    def backend(self) -> str:
        return self._primary.backend

    def publish(self, entries: Sequence[PageEntry]) -> None:
        self._tell(lambda index: index.publish(entries))

    def replace(self, entry: PageEntry) -> None:
        self._tell(lambda index: index.replace(entry))

    def query(self, query: PageQuery) -> Iterator[PageEntry]:
        return self._primary.query(query)

    def forget(self, page_ids: Sequence[str]) -> int:
        return self._tell(lambda index: index.forget(page_ids))

    def replaced(self, tenant: str) -> Iterator[PageEntry]:
        return self._primary.replaced(tenant)

    def count(self) -> int:
        return self._primary.count()

    def check(self) -> None:
        self._tell(lambda index: index.check())

    def close(self) -> None:
        for index in self._all:
            index.close()

    def _tell(self, message: Callable[[PageIndex], _Answer]) -> _Answer:
        answers: list[_Answer] = []
        failures: list[OnexError] = []
        for index in self._all:
            try:
                answers.append(message(index))
            except OnexError as failure:
                failures.append(failure)
        if failures:
            raise failures[0]
        return answers[0]
