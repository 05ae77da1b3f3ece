"""A fold reads as many pages at once as are worth a chunk, and no more."""

from __future__ import annotations

from uuid import uuid4

import pytest

from onex_platform.domain.events import EnumEventKind
from onex_platform.log import replay
from onex_platform.log.replay import PageRef, worthwhile_chunks
from onex_platform_tests.support.encoded_pages import page_of
from onex_platform_tests.support.events import event


def pages(count: int) -> list[PageRef]:
    return [
        PageRef(
            str(n),
            page_of(
                [
                    event(EnumEventKind.NODE_HEARTBEAT, 8000 * n + 8 * m, n, node=uuid4())
                    for m in range(20)
                ]
            ).metadata,
        )
        for n in range(count)
    ]


@pytest.mark.parametrize(
    ("limits", "lengths"),
    [
        ({}, [6]),
        ({"_CHUNK_EVENTS": 40}, [2, 2, 2]),
        ({"_CHUNK_BYTES": 1}, [1] * 6),
    ],
    ids=["few", "many events", "many bytes"],
)
def test_chunks_end_by_events_or_by_bytes(
    monkeypatch: pytest.MonkeyPatch, limits: dict[str, int], lengths: list[int]
) -> None:
    for name, value in limits.items():
        monkeypatch.setattr(replay, name, value)
    assert [len(chunk) for chunk in worthwhile_chunks(pages(6))] == lengths


def test_a_bucket_has_its_share_of_a_pages_bytes() -> None:
    [page] = pages(1)
    shares = [page.bytes_of(bucket) for bucket in page.metadata.bucket_numbers]
    assert page.bytes_of(None) == page.metadata.payload_bytes > 0
    assert 0 <= page.metadata.payload_bytes - sum(shares) < len(shares)
