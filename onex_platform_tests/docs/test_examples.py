"""The examples in the pages do what they say: each is run as it stands, on real servers."""

from __future__ import annotations

import doctest
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from onex_platform_tests.support.doc_pages import Block, Page, all_pages

pytestmark = [pytest.mark.servers, pytest.mark.long]

_LOOSELY = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
_PROMPT = "$ "


def _stops_the_servers(page: Page) -> bool:
    return any("$ onex stack down" in block.text for block in page.blocks("console"))


# Whoever stops the servers comes last: the others would have to start them again.
PAGES_WITH_EXAMPLES = sorted(
    (page for page in all_pages() if page.blocks("console", "python")), key=_stops_the_servers
)


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An empty folder with a stack of its own, as a reader's checkout has one."""
    folder = tmp_path_factory.mktemp("examples")
    yield folder
    _run(["onex", "stack", "down"], folder)


@pytest.mark.parametrize("page", PAGES_WITH_EXAMPLES, ids=lambda page: page.name)
def test_examples_run_and_print_what_the_page_shows(page: Page, workplace: Path) -> None:
    _require_success(_run(["onex", "stack", "up"], workplace), "onex stack up")
    for block in page.blocks("console", "python"):
        where = f"{page.name}:{block.line}"
        if block.language == "python":
            _require_success(_run([sys.executable, "-c", block.text], workplace), where)
            continue
        for command, expected in _commands(block, where):
            answer = _run(shlex.split(command, comments=True), workplace)
            _require_success(answer, f"{where}: {command}")
            if expected:
                assert doctest.OutputChecker().check_output(expected, answer.stdout, _LOOSELY), (
                    f"{where}: {command} printed\n{answer.stdout}"
                )


def _commands(block: Block, where: str) -> Iterator[tuple[str, str]]:
    """Each command of a console block with the output shown below it."""
    assert block.text.startswith(f"{_PROMPT}onex "), f"{where}: begins with no `$ onex …` command"
    for part in block.text.removeprefix(_PROMPT).split(f"\n{_PROMPT}"):
        command, _, expected = part.partition("\n")
        assert command.startswith("onex "), f"{where}: {command}: only onex is run; use sh instead"
        yield command, expected


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("ONEX_")
    }
    environment |= {
        "PATH": f"{sys.prefix}/bin{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "120",
        "NO_COLOR": "1",
    }
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def _require_success(answer: subprocess.CompletedProcess[str], what: str) -> None:
    assert answer.returncode == 0, f"{what} ended with {answer.returncode}:\n{answer.stdout}"
