"""How long `onex topics lint` takes: 2,000 contracts with a schema and two samples, one core.

The same files are also only parsed, which is the floor. Run: python benchmarks/lint.py
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from pathlib import Path

import yaml

from onex_platform.base.paths import project_folder
from onex_platform.topics.grammar import StreamName
from onex_platform.topics.lint.engine import lint
from onex_platform.topics.policy import read_policy
from onex_platform.topics.scaffold import TopicDraft, files_of

CONTRACTS = 2000
GOAL_SECONDS = 5


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        _write(root)
        parsing, judging = _timed(lambda: _parse(root)), _timed(lambda: _judge(root))
    print(f"{CONTRACTS} contracts, {CONTRACTS * 2} samples")
    print(f"bare parse  {parsing:6.2f} s")
    print(f"lint        {judging:6.2f} s  (goal {GOAL_SECONDS} s)")
    print(f"ratio       {judging / parsing:6.1f}")


def _write(root: Path) -> None:
    shutil.copytree(project_folder("contracts") / "policy", root / "policy")
    policy = read_policy(root / "policy")
    for number in range(CONTRACTS):
        name = StreamName("kb", "evt", f"page-changed-{number}", 1)
        draft = TopicDraft(name, "knowledge", "page_id", ("knowledge",), ("knowledge",), "One.")
        files = files_of(draft, policy)
        [sample] = [path for path in files if "/samples/" in path]
        files[sample.replace("smallest", "another")] = files[sample]
        for path, text in files.items():
            target = root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")


def _parse(root: Path) -> None:
    for path in root.rglob("*.yaml"):
        yaml.load(path.read_bytes(), Loader=yaml.CSafeLoader)
    for pattern in ("*.json", "*.avsc"):
        for path in root.rglob(pattern):
            json.loads(path.read_bytes())


def _judge(root: Path) -> None:
    report = lint(root)
    assert report.contracts == CONTRACTS, report.contracts
    assert not report.violations, report.violations[:3]


def _timed(work: object) -> float:
    began = time.perf_counter()
    work()  # type: ignore[operator]
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
