"""The diagram and the table on the registration page are those of the code."""

from __future__ import annotations

from onex_platform.base.paths import project_folder
from onex_platform_tests.support.transition_diagram import state_diagram, transition_table


def test_the_page_shows_the_table_that_the_code_folds_by() -> None:
    page = (project_folder("docs") / "registration.md").read_text()
    assert f"```mermaid\n{state_diagram()}\n```" in page
    assert transition_table() in page
