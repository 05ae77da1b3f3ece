"""Python's collector, told to look rarely."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from onex_platform.base.garbage import collected_rarely


@pytest.fixture
def usual() -> Iterator[tuple[int, int, int]]:
    """Python's own thresholds; another test's program may have changed them."""
    found, own = gc.get_threshold(), (700, 10, 10)
    gc.set_threshold(*own)
    yield own
    gc.set_threshold(*found)


def test_it_looks_rarely_within_the_block_and_as_before_behind_it(
    usual: tuple[int, int, int],
) -> None:
    with pytest.raises(ValueError, match="over"), collected_rarely():
        assert gc.get_threshold() > usual
        raise ValueError("over")
    assert gc.get_threshold() == usual
