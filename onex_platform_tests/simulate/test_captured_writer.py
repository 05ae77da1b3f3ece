"""The demo's captured writer: what it shows is what happens."""

from __future__ import annotations

import pytest

from onex_platform.simulate.captured_writer import watch_capture


@pytest.mark.servers
def test_a_killed_snapshotter_costs_its_writer_nothing() -> None:
    sight = watch_capture()
    assert sight.is_equal
    assert 0 < sight.acknowledged_before <= sight.recovered < sight.acknowledged == sight.replayed
