"""The project's Markdown pages, taken apart: fenced blocks, links, inline code.

Convention for authors: a `console` block holds `$ onex …` commands with their output below, a
`python` block a whole program. Both are run as they stand. What must not be run is `sh` or `text`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from onex_platform.base.paths import project_folder

CHECKOUT = project_folder("docs").parent


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int


@dataclass(frozen=True)
class Page:
    path: Path

    @property
    def name(self) -> str:
        return self.path.relative_to(CHECKOUT).as_posix()

    def blocks(self, *languages: str) -> list[Block]:
        return [
            Block(token.info, token.content, (token.map or [0])[0] + 1)
            for token in self._tokens()
            if token.type == "fence" and token.info in languages
        ]

    def links(self) -> list[str]:
        """The targets of links that lead to another file of the project."""
        targets = [str(token.attrs["href"]) for token in self._inline("link_open")]
        return [target for target in targets if "://" not in target and not target.startswith("#")]

    def inline_code(self) -> list[str]:
        return [token.content for token in self._inline("code_inline")]

    def _tokens(self) -> list[Token]:
        return MarkdownIt("commonmark").enable("table").parse(self.path.read_text())

    def _inline(self, kind: str) -> Iterator[Token]:
        for token in self._tokens():
            yield from (child for child in token.children or () if child.type == kind)


def all_pages() -> list[Page]:
    folders = (CHECKOUT / name for name in ("docs", "docker", "benchmarks", "contracts", "sql"))
    paths = [*CHECKOUT.glob("*.md"), *(path for folder in folders for path in folder.rglob("*.md"))]
    return [Page(path) for path in sorted(paths)]
