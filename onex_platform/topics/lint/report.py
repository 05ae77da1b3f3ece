"""A lint run's report as text, JSON and SARIF, which code hosts show beside the changed lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import PurePath
from typing import Any

from onex_platform import __version__
from onex_platform.topics.lint.engine import RULES, LintReport
from onex_platform.topics.lint.rule import EnumSeverity

_SARIF = "https://json.schemastore.org/sarif-2.1.0.json"


def as_text(report: LintReport, root: PurePath) -> Iterator[str]:
    """One line per violation, and the sum."""
    for found in report.violations:
        place = f"{root / found.path}:{found.line}"
        yield f"{place}: {found.severity} {found.rule}: {found.message}"
    yield (
        f"{report.contracts} contracts: {report.errors} errors, "
        f"{report.count(EnumSeverity.WARNING)} warnings, {report.excused} excused."
    )


def as_json(report: LintReport) -> str:
    return json.dumps(
        {
            "contracts": report.contracts,
            "errors": report.errors,
            "warnings": report.count(EnumSeverity.WARNING),
            "excused": report.excused,
            "violations": [asdict(found) for found in report.violations],
        },
        indent=2,
    )


def as_sarif(report: LintReport, root: PurePath) -> str:
    rules = [
        {
            "id": rule.id,
            "shortDescription": {"text": rule.title},
            "help": {"text": f"Says: {rule.source}"},
            "defaultConfiguration": {"level": rule.severity.value},
        }
        for rule in RULES
    ]
    results: list[dict[str, Any]] = [
        {
            "ruleId": found.rule,
            "level": found.severity.value,
            "message": {"text": found.message},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": (root / found.path).as_posix()},
                        "region": {"startLine": found.line},
                    }
                }
            ],
        }
        for found in report.violations
    ]
    driver = {"name": "onex topics lint", "version": __version__, "rules": rules}
    run = {"tool": {"driver": driver}, "results": results}
    return json.dumps({"$schema": _SARIF, "version": "2.1.0", "runs": [run]}, indent=2)


def rule_table() -> str:
    """The table in the docs."""
    lines = ["| rule | severity | what holds | who says so |", "| --- | --- | --- | --- |"]
    lines += (f"| {r.id} | {r.severity} | {r.title} | {r.source} |" for r in RULES)
    return "\n".join(lines)
