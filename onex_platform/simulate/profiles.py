"""How rough a simulated history is: a rate per disturbance, a weight per scenario, three profiles.

Rates are shares from 0 to 1. Those of records are drawn anew for each heartbeat (duplicates for
every record), those of nodes once for each node.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from onex_platform.base.errors import ConfigurationError
from onex_platform.simulate.scenarios import SCENARIOS

Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class EnumDisturbance(StrEnum):
    """What is wrong with a record, or odd about it; undisturbed records carry none."""

    DUPLICATE = "duplicate"  # the same bytes once more, some time later
    TWIN = "twin"  # the same bytes on the legacy topic as well
    LATE = "late"  # held up for minutes on its way to the broker
    OUT_OF_ORDER = "out_of_order"  # overtaken by the node's next heartbeat
    ECHO = "echo"  # an introspection of a life that is over
    FOREIGN_TENANT = "foreign_tenant"  # another tenant claims the node
    MALFORMED = "malformed"  # the intake parks it


class Rates(BaseModel):
    """The rate of each disturbance; all zero by default."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    duplicate: Share = Field(0, description="of records: sent again with the same event_id")
    late: Share = Field(0, description="of heartbeats and updates: held up for minutes")
    out_of_order: Share = Field(0, description="of heartbeats: overtaken by the next one")
    echo: Share = Field(0, description="of heartbeats: brings an introspection of an older life")
    foreign_tenant: Share = Field(0, description="of heartbeats: another tenant claims the node")
    malformed: Share = Field(0, description="of heartbeats: a record comes along that is parked")
    legacy_topics: Share = Field(0, description="of nodes: publish on legacy topics only")
    both_topics: Share = Field(0, description="of nodes: publish on canonical and legacy topics")
    skewed_clock: Share = Field(0, description="of nodes: their clock is minutes to months off")
    plain_id: Share = Field(0, description="of nodes: named by plain text, not by a UUID")
    odd_spelling: Share = Field(0, description="of nodes: their UUID in braces, upper case, …")

    @model_validator(mode="after")
    def _exclude_each_other(self) -> Self:
        for names in _EXCLUSIVE:
            total = sum(getattr(self, name) for name in names)
            if total > 1:
                raise ValueError(f"{' + '.join(names)} = {total:g}; together they are at most 1")
        return self

    def beat_troubles(self) -> dict[EnumDisturbance, float]:
        """The rates of what can befall a single heartbeat; at most one of them does."""
        return {EnumDisturbance(name): getattr(self, name) for name in _BEAT_TROUBLES}


_BEAT_TROUBLES = ("duplicate", "late", "out_of_order", "echo", "foreign_tenant", "malformed")
_EXCLUSIVE = (_BEAT_TROUBLES, ("legacy_topics", "both_topics"), ("plain_id", "odd_spelling"))


class Profile(BaseModel):
    """A named mix of scenarios and disturbances."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rates: Rates = Rates()
    weights: Mapping[str, Weight] = {name: scenario.weight for name, scenario in SCENARIOS.items()}

    @model_validator(mode="after")
    def _scenarios_exist(self) -> Self:
        if unknown := set(self.weights) - set(SCENARIOS):
            raise ValueError(f"no scenario {_listed(unknown)}; there are {_listed(SCENARIOS)}")
        if not any(self.weights.values()):
            raise ValueError("every scenario has the weight 0; at least one must be played")
        return self

    def changed(
        self, rates: Mapping[str, float] | None = None, weights: Mapping[str, float] | None = None
    ) -> Profile:
        """This profile with some rates replaced, and with these scenarios only if any are given."""
        try:
            return Profile.model_validate(
                {
                    "rates": self.rates.model_dump() | dict(rates or {}),
                    "weights": weights or self.weights,
                }
            )
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            name = ".".join(map(str, problem["loc"]))
            raise ConfigurationError(
                f"Wrong profile: {name}{'=' if name else ''}"
                f"{problem['input'] if name else ''}: {problem['msg']}.",
                hint="`onex simulate profiles` lists the rates and scenarios.",
            ) from None


PROFILES: Mapping[str, Profile] = {
    # What a healthy platform sees: every node speaks the current dialect, nothing goes astray.
    "calm": Profile(weights={"steady": 70, "graceful": 20, "returns": 10}),
    "default": Profile(
        rates=Rates(
            duplicate=0.005,
            late=0.003,
            out_of_order=0.003,
            echo=0.0005,
            foreign_tenant=0.0005,
            malformed=0.001,
            legacy_topics=0.1,
            both_topics=0.1,
            skewed_clock=0.05,
            plain_id=0.3,
            odd_spelling=0.2,
        )
    ),
    "stormy": Profile(
        rates=Rates(
            duplicate=0.1,
            late=0.05,
            out_of_order=0.05,
            echo=0.02,
            foreign_tenant=0.02,
            malformed=0.05,
            legacy_topics=0.2,
            both_topics=0.3,
            skewed_clock=0.3,
            plain_id=0.4,
            odd_spelling=0.4,
        ),
        weights=dict.fromkeys(SCENARIOS, 1),
    ),
}


def _listed(names: Mapping[str, object] | set[str]) -> str:
    return ", ".join(sorted(names))
