"""The nodes of the fleet: who they are, drawn once, and where they stand in their life."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from onex_platform.domain.headers import TENANT
from onex_platform.domain.states import EnumNodeType, EnumRegistrationState
from onex_platform.simulate.plan import FleetPlan
from onex_platform.simulate.records import Headers
from onex_platform.simulate.routes import key_hash
from onex_platform.simulate.scenarios import Step
from onex_platform.simulate.wire import BeatForm, uuid_text

_MINUTE_MS = 60_000
_DAY_MS = 24 * 60 * _MINUTE_MS
_LEAST_SKEW_MS = 5 * _MINUTE_MS
_MOST_AHEAD_MS = 400 * _DAY_MS
# Less than event ids are remembered: else the intake would park what the node says.
_MOST_BEHIND_MS = 10 * _DAY_MS

_FAMILIES = {
    EnumNodeType.EFFECT: ("postgres-adapter", "kafka-adapter", "consul-adapter"),
    EnumNodeType.COMPUTE: ("embedding", "tokenizer", "validator"),
    EnumNodeType.REDUCER: ("metrics-reducer", "registry-reducer"),
    EnumNodeType.ORCHESTRATOR: ("workflow", "registration-orchestrator"),
}
_SPELLINGS: tuple[Callable[[str], str], ...] = (
    str.upper,
    "{{{}}}".format,
    "urn:uuid:{}".format,
    lambda uuid: uuid.replace("-", ""),
    lambda uuid: f"{{{uuid.upper()}}}",
)


_NO_FORM = BeatForm("", "")


class Voice(NamedTuple):
    """How the node, or the registry, names the node in its events."""

    node_id: str
    source: str
    key: bytes
    key_hash: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What never changes about a node."""

    index: int
    tenant: str
    headers: Headers
    node_type: EnumNodeType
    family: str
    own_voice: Voice
    registry_voice: Voice
    plain_id: bool
    legacy: bool  # speaks on legacy topics only
    twin: bool  # speaks on canonical and legacy topics
    skew_ms: int  # how far its clock is ahead
    epoch_in_beats: bool

    def odd(self) -> Iterator[str]:
        """What sets the node apart, in the words of the rates."""
        if self.legacy:
            yield "legacy_topics"
        if self.twin:
            yield "both_topics"
        if self.skew_ms:
            yield "skewed_clock"
        if self.plain_id:
            yield "plain_id"
        if self.own_voice.node_id != self.registry_voice.node_id:
            yield "odd_spelling"


@dataclass(slots=True)
class Node:
    """A node in its life, moved on by the fleet."""

    traits: Traits
    scenario: str = ""
    steps: tuple[Step, ...] = ()
    step: int = 0
    beats_until_ms: int = 0
    born_ms: int = 0
    epoch: int = 0
    names_epoch: bool = True
    level: int = 0  # how often its capabilities changed
    correlation_id: str = ""
    beat_form: BeatForm = _NO_FORM
    state: EnumRegistrationState | None = None
    closed: bool = False
    granted_ms: int = 0  # when the deadline that stands was granted
    window_ms: int = 0  # and for how long
    held_up: bool = False  # its last heartbeat has not arrived yet
    unconfirmed: int = 0  # records that the broker has not acknowledged yet

    @property
    def deadline_ms(self) -> int:
        return self.granted_ms + self.window_ms

    def is_active(self) -> bool:
        return self.state is EnumRegistrationState.ACTIVE and not self.closed


def draw_traits(index: int, plan: FleetPlan, random: Random) -> Traits:
    """The node with this number; nodes next to each other differ in tenant and share plain ids."""
    rates = plan.profile.rates
    tenants = (plan.tenant, *plan.other_tenants)
    tenant = tenants[index % len(tenants)]
    number = index // len(tenants)
    node_type = tuple(EnumNodeType)[number % len(EnumNodeType)]
    family = _FAMILIES[node_type][number % len(_FAMILIES[node_type])]
    id_roll, topic_roll, clock_roll = random.random(), random.random(), random.random()
    uuid = uuid_text(random.getrandbits(128))
    plain_id = id_roll < rates.plain_id
    registrys_id = f"{family}-{number:05d}" if plain_id else uuid
    own_id = registrys_id
    if not plain_id and id_roll < rates.plain_id + rates.odd_spelling:
        own_id = _SPELLINGS[int(random.random() * len(_SPELLINGS))](uuid)
    legacy = topic_roll < rates.legacy_topics
    return Traits(
        index=index,
        tenant=tenant,
        # The default tenant is the one that need not be named.
        headers=() if tenant == plan.tenant else ((TENANT, tenant.encode()),),
        node_type=node_type,
        family=family,
        own_voice=_voice(own_id, f"node/{family}"),
        registry_voice=_voice(registrys_id, "registry"),
        plain_id=plain_id,
        legacy=legacy,
        twin=not legacy and topic_roll < rates.legacy_topics + rates.both_topics,
        skew_ms=_drawn_skew_ms(random) if clock_roll < rates.skewed_clock else 0,
        epoch_in_beats=random.random() < 0.5,
    )


def _voice(node_id: str, source: str) -> Voice:
    key = node_id.encode()
    return Voice(node_id, source, key, key_hash(key))


def _drawn_skew_ms(random: Random) -> int:
    ahead, length = random.random() < 0.5, random.random()
    most = _MOST_AHEAD_MS if ahead else -_MOST_BEHIND_MS
    return int(most * length) + (_LEAST_SKEW_MS if ahead else -_LEAST_SKEW_MS)
