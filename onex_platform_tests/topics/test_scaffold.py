"""New topics pass the rules at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from onex_platform.cli.topics import command
from onex_platform.topics.grammar import STREAM_CLASSES
from onex_platform.topics.lint.engine import lint
from onex_platform_tests.support.contract_trees import write_tree


def _new(root: Path, *arguments: str) -> str:
    base = ["new", "--contracts", str(root), "--owner", "knowledge", "--role", "knowledge"]
    result = CliRunner().invoke(command, [*base, *arguments])
    return result.output if result.exit_code == 0 else str(result.exception)


@pytest.mark.parametrize("stream_class", [c for c in STREAM_CLASSES if c != "qrs"])
def test_a_new_topic_passes_at_once(tmp_path: Path, stream_class: str) -> None:
    root = write_tree(tmp_path, {})
    assert "written" in _new(root, f"kb.{stream_class}.page-changed.v1", "--key", "page_id")
    assert lint(root).violations == ()


def test_a_context_s_baseline_passes_at_once(tmp_path: Path) -> None:
    root = write_tree(tmp_path, {})
    assert "written" in _new(root, "kb", "--baseline")
    assert lint(root).violations == ()
    assert {path.parent.parent.parent.name for path in root.glob("kb/*/*/*/contract.yaml")} == {
        "evt",
        "cmd",
        "ctl",
        "aud",
        "met",
        "qrs",
    }
    assert len(list(root.glob("kb/qrs/*"))) == 2


def test_an_onex_topic_is_made_from_its_payload_model(tmp_path: Path) -> None:
    root = write_tree(tmp_path, {})
    made = CliRunner().invoke(
        command,
        [
            *("new", "onex.node.heartbeat.published.v2", "--contracts", str(root)),
            *("--owner", "node-runtime", "--role", "registry", "--key", "node_id"),
        ],
    )
    assert made.exit_code == 0, made.output
    assert lint(root).violations == ()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["kbb.evt.page.v1", "--key", "page_id"], "context 'kbb' is not known; did you mean 'kb'"),
        (["kb.event.page.v1", "--key", "page_id"], "did you mean 'evt'?"),
        (["prod.omnibase.kb.evt.page.v1", "--key", "page_id"], "names a tenant"),
        (["kb.evt.page.v1"], "needs a key"),
        (["onex.node.pulse.published.v1", "--key", "node_id"], "no payload model knows"),
        (["kb.qrs.search.v1", "--key", "query_id"], "ends neither with -requests"),
    ],
)
def test_a_wrong_request_is_refused_with_the_way_out(
    tmp_path: Path, arguments: list[str], told: str
) -> None:
    assert told in _new(write_tree(tmp_path, {}), *arguments)


def test_what_exists_is_not_overwritten(tmp_path: Path) -> None:
    root = write_tree(tmp_path, {})
    _new(root, "kb.evt.page-changed.v1", "--key", "page_id")
    assert "exists already" in _new(root, "kb.evt.page-changed.v1", "--key", "page_id")
