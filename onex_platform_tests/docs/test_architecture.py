"""The walks through the code are as long as they say, and no longer than a reader can follow."""

from __future__ import annotations

import re

from onex_platform_tests.support.doc_pages import CHECKOUT

_PAGE = (CHECKOUT / "docs" / "architecture.md").read_text()
_WALK = re.compile(r"### An? (\w+)[^\n]*: (\d+) files, (\d+) steps? back\n(.*?)(?=\n##)", re.DOTALL)
# Files and steps back, at most.
_BOUNDS = {"introspection": (30, 6), "heartbeat": (22, 6), "expiry": (34, 6)}


def test_no_walk_is_longer_than_its_bound() -> None:
    walks = {name: (int(files), int(back)) for name, files, back, _ in _WALK.findall(_PAGE)}
    assert walks.keys() == _BOUNDS.keys()
    for name, (files, back) in walks.items():
        assert (files <= _BOUNDS[name][0], back <= _BOUNDS[name][1]) == (True, True), name


def test_the_whole_walk_lists_as_many_files_and_steps_as_it_says() -> None:
    [(files, back, rows)] = [
        walk[1:] for walk in _WALK.findall(_PAGE) if walk[0] == "introspection"
    ]
    named = re.findall(r"^\| \d+ \| `([\w/.]+)`", rows, re.MULTILINE)
    assert (len(named), len(set(named)), rows.count("↩")) == (int(files), int(files), int(back))
