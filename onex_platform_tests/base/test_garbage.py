"""Python's collector, told to look rarely."""

from __future__ import annotations

import gc

import pytest

from onex_platform.base.garbage import collected_rarely


def test_it_looks_rarely_within_the_block_and_as_before_behind_it() -> None:
    before = gc.get_threshold()
    with pytest.raises(ValueError, match="over"), collected_rarely():
        assert gc.get_threshold() > before
        raise ValueError("over")
    assert gc.get_threshold() == before
