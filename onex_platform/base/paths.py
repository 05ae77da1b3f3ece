"""Where the files that stand beside the package are: in a checkout, after a wheel install."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

from onex_platform import __version__
from onex_platform.base.errors import ConfigurationError

_PACKAGE = Path(__file__).resolve().parents[1]
_CHECKOUT = _PACKAGE.parent
_INSTALLED = Path(sys.prefix) / "share" / "onex-platform"


def project_folder(name: str) -> Path:
    """The folder `name` (`sql`, `contracts`) of the checkout, or of the installation."""
    return _find(name, "folder", Path.is_dir)


def project_file(name: str) -> Path:
    """The file `name` (`dagster.yaml`) of the checkout, or of the installation."""
    return _find(name, "file", Path.is_file)


@cache
def code_version() -> str:
    """The release, and a digest of the code as it was when this process first asked.

    Two processes with the same one run the same code, in a checkout as well.
    """
    digest = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        digest.update(path.relative_to(_PACKAGE).as_posix().encode() + b"\0" + path.read_bytes())
    return f"{__version__}+{digest.hexdigest()[:12]}"


def _find(name: str, kind: str, is_one: Callable[[Path], bool]) -> Path:
    for root in (_CHECKOUT, _INSTALLED):
        if is_one(root / name):
            return root / name
    raise ConfigurationError(
        f"The {kind} {name!r} is neither in {_CHECKOUT} nor in {_INSTALLED}.",
        hint="Install onex-platform from its wheel or run it from a checkout.",
    )
