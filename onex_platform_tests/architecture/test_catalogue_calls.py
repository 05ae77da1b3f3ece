"""The catalogue is handed in: it is loaded where a program begins, and nowhere deep inside."""

from __future__ import annotations

import ast

from onex_platform_tests.support.source_tree import PACKAGE, modules_of

# Where a caller may leave the catalogue out, and means the platform's own.
OPENERS = {
    ("onex_platform/ingest/archive.py", "open_archive"),
    ("onex_platform/snapshots/topic_config.py", "_fill_from_the_contract"),
    ("onex_platform/topics/node_contracts.py", "_default_topics"),
    ("onex_platform/topics/node_contracts.py", "read_node_contract"),
}
# Where programs begin.
BEGINNINGS = ("onex_platform/definitions.py", "onex_platform/cli/", "onex_platform/stack/")


def test_only_programs_and_openers_load_the_catalogue() -> None:
    calls = {
        (module.path, function.name)
        for module in modules_of(PACKAGE)
        if not module.path.startswith(BEGINNINGS)
        for function in ast.walk(module.tree)
        if isinstance(function, ast.FunctionDef)
        for call in ast.walk(function)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id == "load_catalogue"
    }
    assert calls == OPENERS
