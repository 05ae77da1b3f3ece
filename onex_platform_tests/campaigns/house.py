"""Dagster as it runs in containers: a code server and a daemon, each started again when it ends."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from onex_platform.base.environment import child_environment
from onex_platform.base.paths import project_file
from onex_platform.base.settings import Settings, address_variables
from onex_platform.stack.ports import free_port

_LOOK_SECONDS = 0.5
_END_SECONDS = 10


class House:
    """The two processes of Dagster, and the supervisor that a container engine would be."""

    def __init__(self, settings: Settings, folder: Path, variables: Mapping[str, str]) -> None:
        self.home = folder / "dagster"
        self.home.mkdir(parents=True)
        shutil.copy(project_file("dagster.yaml"), self.home)
        self._port = free_port()
        (self.home / "workspace.yaml").write_text(
            "load_from:\n  - grpc_server:\n      host: 127.0.0.1\n"
            f"      port: {self._port}\n      location_name: onex_platform\n"
        )
        self._environment = child_environment(
            {
                **address_variables(settings),
                "ONEX_STACK_FOLDER": str(settings.stack.folder),
                "ONEX_STACK_CACHE": str(settings.stack.cache),
                "DAGSTER_HOME": str(self.home),
                **variables,
            }
        )
        self._commands = {
            "code-server": [
                "dagster", "code-server", "start", "--host", "127.0.0.1", "--port",
                str(self._port), "--module-name", "onex_platform.definitions",
                "--location-name", "onex_platform",
            ],
            "daemon": ["dagster-daemon", "run", "--workspace", str(self.home / "workspace.yaml")],
        }  # fmt: skip
        self._processes: dict[str, psutil.Popen] = {}
        self._supervising = threading.Event()
        self._supervisor = threading.Thread(target=self._supervise, daemon=True)
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self.start()
        self._supervisor.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._lock:
            self._supervising.set()
        self._supervisor.join()
        family = self.family()
        for process in self._processes.values():
            process.terminate()
        for process in psutil.wait_procs(family, timeout=_END_SECONDS)[1]:
            process.kill()
        psutil.wait_procs(family, timeout=_END_SECONDS)

    def process(self, name: str) -> psutil.Process:
        return self._processes[name]

    def family(self) -> list[psutil.Process]:
        """Every living process: both servers, run workers, JVMs."""
        found: dict[int, psutil.Process] = {}
        for process in psutil.process_iter(["environ"]):
            environment = process.info["environ"] or {}
            if environment.get("DAGSTER_HOME") == str(self.home):
                found[process.pid] = process
        return list(found.values())

    def kill_everything(self) -> None:
        """As a host that loses its power; the supervisor starts both again."""
        with self._lock:
            for process in self.family():
                process.kill()
            psutil.wait_procs(self.family(), timeout=_END_SECONDS)

    def start(self) -> None:
        for name in self._commands:
            self._start(name)

    def log(self, name: str) -> str:
        return (self.home / f"{name}.log").read_text(errors="replace")

    def _start(self, name: str) -> None:
        program, *arguments = self._commands[name]
        with (self.home / f"{name}.log").open("ab") as log:
            self._processes[name] = psutil.Popen(
                [str(Path(sys.executable).with_name(program)), *arguments],
                env=self._environment,
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _supervise(self) -> None:
        while not self._supervising.wait(_LOOK_SECONDS):
            with self._lock:
                for name, process in self._processes.items():
                    if process.poll() is not None and not self._supervising.is_set():
                        self._start(name)
