"""Options that several commands share: lengths of time, and whose node is meant."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any, ClassVar

import click


class Duration(click.ParamType[timedelta]):
    """A number and its unit: 90s, 15m, 6h, 30d."""

    name = "duration"
    _UNITS: ClassVar = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}

    def convert(self, value: Any, param: Any, ctx: Any) -> timedelta:
        if isinstance(value, timedelta):
            return value
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", value)
        if match is None:
            self.fail(f"{value!r} is no duration; write 90s, 15m, 6h or 30d.", param, ctx)
        return timedelta(**{self._UNITS[match[2]]: float(match[1])})


# A node is named by a UUID in any spelling, or by a plain-text id within its tenant.
tenant_option = click.option(
    "--tenant", help="Whose node it is, if its id is plain text; by default ONEX_TENANT."
)
