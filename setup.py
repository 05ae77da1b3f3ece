"""The files beside the package that an installation needs; all else is in pyproject.toml.

`data-files` there knows no nested folders, and the contracts are a tree.
"""

from pathlib import Path

from setuptools import setup

_SHARE = Path("share/onex-platform")


def _tree(root: str, pattern: str = "*") -> list[tuple[str, list[str]]]:
    """Every folder below `root` with its files."""
    files = sorted(path for path in Path(root).rglob(pattern) if path.is_file())
    folders = sorted({path.parent for path in files})
    return [
        (str(_SHARE / folder), [str(path) for path in files if path.parent == folder])
        for folder in folders
    ]


setup(data_files=[(str(_SHARE), ["dagster.yaml"]), *_tree("sql", "*.sql"), *_tree("contracts")])
