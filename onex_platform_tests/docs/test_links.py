"""What the pages refer to exists: links, files, commands of `onex`, targets of make."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from onex_platform.cli.main import cli
from onex_platform_tests.support.doc_pages import CHECKOUT, Page, all_pages

_FILE = re.compile(r"[\w*][\w.*-]*(/[\w.*-]+)*(/|\.(py|md|yaml|yml|toml|sql|txt|conf|json))")
_MADE_LATER = (".onex", ".venv", ".env", "build", "dist")

every_page = pytest.mark.parametrize("page", all_pages(), ids=lambda page: page.name)


@every_page
def test_links_lead_somewhere(page: Page) -> None:
    for target in page.links():
        assert (page.path.parent / target.partition("#")[0]).exists(), target


@every_page
def test_files_that_are_named_exist(page: Page) -> None:
    for code in page.inline_code():
        if _FILE.fullmatch(code) and code.split("/")[0] not in _MADE_LATER:
            assert any(_matches(page, code)), code


@every_page
def test_commands_that_are_named_exist(page: Page) -> None:
    blocks = "\n".join(block.text for block in page.blocks("console", "sh"))
    for code in [*page.inline_code(), *re.findall(r"\b(?:onex|make) .*", blocks)]:
        program, _, rest = code.partition(" ")
        if program == "onex":
            _require_command(code)
        elif program == "make":
            targets = (CHECKOUT / "Makefile").read_text()
            assert re.search(rf"^{rest.split()[0]}:", targets, re.MULTILINE), code


def test_the_index_lists_every_page() -> None:
    index = Page(CHECKOUT / "docs/README.md")
    listed = {(index.path.parent / target).resolve() for target in index.links()}
    missing = {page.name for page in all_pages() if page.path.is_relative_to(CHECKOUT / "docs")} - {
        path.relative_to(CHECKOUT).as_posix() for path in [*listed, index.path]
    }
    assert not missing


def _matches(page: Page, code: str) -> Iterator[Path]:
    """A path counts from the checkout, the package or the page; a bare name stands anywhere."""
    for root in (CHECKOUT, CHECKOUT / "onex_platform", page.path.parent):
        yield from root.glob(code)
    if "/" not in code:
        for folder in ("onex_platform", "onex_platform_tests", "docs", "contracts", "sql"):
            yield from (CHECKOUT / folder).rglob(code)


def _require_command(line: str) -> None:
    """Each word up to the first option or argument is a command; each option exists there."""
    command: click.Command = cli
    context = click.Context(cli)
    words = re.split(r"[;&|]", line)[0].split()[1:]
    for word in words:
        if word.startswith("--"):
            options = [name for option in command.get_params(context) for name in option.opts]
            assert word.split("=")[0] in options, f"{word} in {line!r}"
        elif isinstance(command, click.Group) and re.fullmatch(r"[a-z-]+", word):
            found = command.get_command(context, word)
            assert found is not None, f"{word} in {line!r}"
            command = found
