"""The table of docs/health.md says what the code says."""

from __future__ import annotations

import click

from onex_platform.health.thresholds import METRICS
from onex_platform_tests.support.doc_pages import CHECKOUT

PAGE = CHECKOUT / "docs/health.md"


def numbers_table() -> str:
    rows = []
    for metric in METRICS.values():
        bounds = ["", "", ""]
        if metric.thresholds is not None:
            found = metric.thresholds
            bounds = [
                "" if bound is None else f"{bound:g}"
                for bound in (found.acceptable, found.warning, found.critical)
            ]
        cells = (f"`{metric.name}`", metric.unit, metric.of_each, *bounds, metric.source)
        rows.append(f"| {' | '.join(cells)} |".replace("|  |", "| |").replace("|  |", "| |"))
    return "\n".join(rows)


def test_the_page_has_every_number_as_the_code_has_it() -> None:
    assert numbers_table() in PAGE.read_text(), (
        "Replace the table by the output of "
        "`.venv/bin/python -m onex_platform_tests.docs.test_health`."
    )


if __name__ == "__main__":
    click.echo(numbers_table())
