"""The transition table as people read it: a Mermaid diagram and a Markdown table.

Both stand in docs/registration.md; a test compares them with the table. To renew them:
`python -m onex_platform_tests.support.transition_diagram`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from onex_platform.domain.states import EnumRegistrationState
from onex_platform.domain.transitions import INFORMATIONAL, TRANSITIONS, Life, Transition, When

_WHEN = {
    When.ALWAYS: "",
    When.FINAL: "not retry_eligible",
    When.RETRYABLE: "retry_eligible",
    When.DEADLINE_STANDS: "deadline stands",
}


def state_diagram() -> str:
    """The changes of state; what leaves the state alone is in the table only."""
    return "\n".join(["stateDiagram-v2", *_arrows(), *_ends()])


def transition_table() -> str:
    """Every row of the table, and the kinds that touch no row."""
    lines = ["| event | life | from | to | effects | when |", "|---|---|---|---|---|---|"]
    lines += [_row(transition) for transition in TRANSITIONS]
    lines += [f"| {kind} | any | any, unknown | same |  |  |" for kind in sorted(INFORMATIONAL)]
    return "\n".join(lines)


def _arrows() -> Iterator[str]:
    for transition in TRANSITIONS:
        if transition.to is None:
            continue
        condition = f" [{_WHEN[transition.when]}]" if _WHEN[transition.when] else ""
        label = f"{transition.kind}{condition}"
        if transition.life is Life.NEW:
            yield f"    [*] --> {transition.to}: {label}, unknown node or higher epoch"
            continue
        for source in _ordered(transition.sources):
            yield f"    {source} --> {transition.to}: {label}"


def _ends() -> Iterator[str]:
    for state in EnumRegistrationState:
        if state.is_terminal():
            yield f"    {state} --> [*]: the life is over"


def _row(transition: Transition) -> str:
    cells = (
        str(transition.kind),
        transition.life.name.lower(),
        _sources(transition.sources),
        str(transition.to or "same"),
        ", ".join(effect.name.lower() for effect in transition.effects),
        _WHEN[transition.when],
    )
    return f"| {' | '.join(cells)} |"


def _sources(sources: frozenset[EnumRegistrationState | None]) -> str:
    known = set(sources) - {None}
    names = ["any"] if known == set(EnumRegistrationState) else _ordered(sources)
    return ", ".join([*names, *(["unknown"] if None in sources else [])])


def _ordered(sources: Iterable[EnumRegistrationState | None]) -> list[str]:
    return [state.value for state in EnumRegistrationState if state in set(sources)]


if __name__ == "__main__":
    print(f"```mermaid\n{state_diagram()}\n```\n\n{transition_table()}")  # noqa: T201
