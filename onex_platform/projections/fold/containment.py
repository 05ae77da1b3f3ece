"""What raises for one node is that node's affair: found, named, and left out of the next pass.

Nothing is undone: a fold during which a node raised is made again without it, as often as that
takes. Where code works on many nodes at once and does not say for which of them it failed, halves
of them are tried. A server that is away, a full disk or a lack of memory is nobody's fault here and
passes as it is. So does a failure for most nodes at once: then the code is broken, not a node.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import psycopg
from sqlalchemy.exc import SQLAlchemyError

from onex_platform.base.errors import OnexError
from onex_platform.base.telemetry import redact
from onex_platform.engines.postgres.database import storable

if TYPE_CHECKING:
    from onex_platform.projections.fold.column_fold import BucketFold

T = TypeVar("T")
Item = TypeVar("Item")

_OURS = (OnexError, OSError, MemoryError, ImportError, SQLAlchemyError)
# What PostgreSQL says of values: wrong data, a violated constraint, a limit of the program.
_OF_VALUES = frozenset({"22", "23", "54"})
_MOST_TEXT = 500
# As many may always be set aside; more of them only as long as most others are well.
FEW = 10


class Fault(NamedTuple):
    """What a node raised, and the event at which it did so, if one is known."""

    error: str
    event_id: bytes | None = None
    kind: str | None = None


class MassFaultError(OnexError):
    """The code raises for most nodes: they are not set aside, and nothing was written."""


def is_of_a_node(error: Exception) -> bool:
    """Whether an error may be due to what one node sent, and not to us or a server."""
    if isinstance(error, psycopg.Error):
        if error.sqlstate is not None:
            return error.sqlstate[:2] in _OF_VALUES
        return isinstance(error, psycopg.DataError | psycopg.ProgrammingError)  # the driver's own
    return not isinstance(error, _OURS)


def fault_of(error: Exception, event_id: bytes | None = None, kind: str | None = None) -> Fault:
    """An error as it is stored and shown: one line, not too long, without secrets."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    text = storable(redact(text))
    return Fault(text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}…", event_id, kind)


def find_culprits(
    nodes: Sequence[Item], attempt: Callable[[Sequence[Item]], object]
) -> dict[Item, Exception]:
    """The nodes for which the attempt fails if it is made with them alone."""
    if not nodes:
        return {}
    try:
        attempt(nodes)
    except Exception as error:
        if not is_of_a_node(error):
            raise
        if len(nodes) == 1:
            return {nodes[0]: error}
        half = len(nodes) // 2
        return find_culprits(nodes[:half], attempt) | find_culprits(nodes[half:], attempt)
    return {}


def culprits_of(
    error: Exception, nodes: Sequence[Item], attempt: Callable[[Sequence[Item]], object]
) -> dict[Item, Exception]:
    """Those to whom an error is due; raises it if it is nobody's."""
    found = find_culprits(nodes, attempt) if is_of_a_node(error) else {}
    if not found:
        raise error
    return found


def require_few(faults: Collection[object], nodes: int, example: str) -> None:
    """Refuse to set most nodes aside."""
    if len(faults) > FEW and 2 * len(faults) > nodes:
        raise MassFaultError(
            f"The code raises for {len(faults)} of {nodes} nodes, such as: {example}",
            hint="Nothing was written. Run a version of the code that works; the log is whole.",
        )


def fold_contained(
    fold: Callable[[frozenset[bytes]], BucketFold],
    render: Callable[[BucketFold], T],
    excluded: frozenset[bytes],
    faults: dict[bytes, Fault],
) -> tuple[BucketFold, T]:
    """Fold and render without the `excluded`, and again without whoever raises.

    Those are added to `faults`, which may hold some already.
    """
    while True:
        folded = fold(excluded | faults.keys())
        rendered = render(folded)
        if not folded.faults:
            return folded, rendered
        faults |= folded.faults
        require_few(faults, folded.size, next(iter(folded.faults.values())).error)
