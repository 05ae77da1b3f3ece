"""The demo's captured writer: what it shows is what happens."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from onex_platform.simulate.captured_writer import watch_capture


@pytest.mark.servers
def test_a_killed_snapshotter_costs_its_writer_nothing() -> None:
    sight = watch_capture()
    assert sight.is_equal
    assert 0 < sight.acknowledged_before <= sight.recovered < sight.acknowledged == sight.replayed


_STARTER = """
import os, signal, sys
from pathlib import Path
from onex_platform.simulate.captured_writer import SnapshotterProcess

snapshotter = SnapshotterProcess(Path(sys.argv[1]))
snapshotter.start()
print(snapshotter.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.servers
def test_a_snapshotter_does_not_outlive_a_demo_that_is_killed(tmp_path: Path) -> None:
    started = subprocess.run(
        [sys.executable, "-c", _STARTER, str(tmp_path)],
        stdout=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    assert started.returncode == -signal.SIGKILL
    with suppress(psutil.NoSuchProcess):
        psutil.Process(int(started.stdout)).wait(30)
