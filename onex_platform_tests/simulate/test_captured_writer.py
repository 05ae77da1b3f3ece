"""The demo's captured writer: what it shows is what happens."""

from __future__ import annotations

import pytest

from onex_platform.capture.captured_events import CapturedEvent
from onex_platform.simulate import captured_writer
from onex_platform.simulate.captured_writer import watch_capture


@pytest.mark.servers
def test_a_killed_snapshotter_costs_its_writer_nothing() -> None:
    sight = watch_capture()
    assert sight.is_equal
    assert 0 < sight.acknowledged_before <= sight.recovered < sight.acknowledged == sight.replayed


@pytest.mark.servers
def test_a_replay_that_lacks_an_event_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = captured_writer._replay

    def lossy(config: captured_writer.CaptureConfig) -> list[CapturedEvent]:
        return whole(config)[:-1]

    monkeypatch.setattr(captured_writer, "_replay", lossy)
    sight = watch_capture()
    assert (sight.is_equal, sight.acknowledged - sight.replayed) == (False, 1)
