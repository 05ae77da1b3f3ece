"""Every rule has an example that it and only it catches."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from onex_platform.topics.lint.engine import RULES, lint
from onex_platform.topics.policy import load_policy
from onex_platform_tests.support.contract_trees import write_tree
from onex_platform_tests.topics.lint.examples import EXAMPLES

_TODAY = date(2026, 11, 18)
_IDS = [rule.id for rule in RULES]


def test_ids_are_unique_and_each_has_an_example() -> None:
    assert len(set(_IDS)) == len(_IDS)
    assert set(EXAMPLES) == set(_IDS)


@pytest.mark.parametrize("rule", RULES, ids=_IDS)
def test_an_example_breaks_its_rule_and_no_other(tmp_path: Path, rule: object) -> None:
    id_ = getattr(rule, "id", "")
    root = write_tree(tmp_path, EXAMPLES[id_].tree(load_policy()))
    broken = {violation.rule for violation in lint(root, today=_TODAY).violations}
    assert broken == {id_}
    without = [other for other in RULES if other is not rule]
    assert id_ not in {found.rule for found in lint(root, rules=without, today=_TODAY).violations}
