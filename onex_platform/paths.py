"""Where the folders that stand beside the package are: in a checkout and after a wheel install."""

from __future__ import annotations

import sys
from pathlib import Path

from onex_platform.errors import ConfigurationError

_CHECKOUT = Path(__file__).resolve().parent.parent
_INSTALLED = Path(sys.prefix) / "share" / "onex-platform"


def project_folder(name: str) -> Path:
    """The folder `name` (`sql`, `contracts`) of the checkout, or of the installation."""
    for root in (_CHECKOUT, _INSTALLED):
        if (root / name).is_dir():
            return root / name
    raise ConfigurationError(
        f"The folder {name!r} is neither in {_CHECKOUT} nor in {_INSTALLED}.",
        hint="Install onex-platform from its wheel or run it from a checkout.",
    )
