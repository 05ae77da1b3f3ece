"""Policy as data: what binds all contracts, read from `contracts/policy`.

The files are the only place that knows environments, tenants, contexts, teams, the class matrix,
the tables of keys and retention, access and exceptions. Code asks questions of them here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import date, timedelta
from fnmatch import fnmatchcase
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError

from onex_platform.base.errors import ConfigurationError
from onex_platform.base.paths import project_folder
from onex_platform.domain.identity import CANARY_TENANT
from onex_platform.topics.documents import read_document
from onex_platform.topics.fields import Duration, Part, explain
from onex_platform.topics.grammar import (
    NOT_FOR_TENANTS,
    STREAM_CLASSES,
    LegacyName,
    LogicalName,
    TopicName,
    broken,
    physical,
    suggestion,
)
from onex_platform.topics.patterns import NamePattern, Resource, resources

Pattern = Annotated[NamePattern, BeforeValidator(lambda text: NamePattern(str(text)))]


class Environment(Part):
    """What one environment's clusters have, and which topics are brought there."""

    tiered_storage: bool
    topics: tuple[Pattern, ...]


class Tenant(Part):
    description: str
    topics: tuple[Pattern, ...]
    home: bool = False


class Triage(Part):
    team: str
    within: Duration


class Context(Part):
    description: str
    triage: Triage


class Team(Part):
    rotation: str = Field(min_length=1)


class ClassPolicy(Part):
    """A row of the matrix: bounds are inclusive."""

    retention: tuple[Duration, Duration]
    critical: tuple[Duration, Duration] | None = None
    compaction: Literal["optional", "none"]
    tiered: Literal["always", "critical", "never"]

    def bounds(self, *, critical: bool) -> tuple[timedelta, timedelta]:
        return self.critical if critical and self.critical else self.retention


class KeyRule(Part):
    kinds: str
    key: str
    producers: frozenset[str]

    def covers(self, kind: str) -> bool:
        return fnmatchcase(kind, self.kinds)


class Keys(Part):
    events: tuple[KeyRule, ...]
    snapshots: str
    random: frozenset[str]


class RetentionRule(Part):
    kinds: str
    retention: Duration


class Role(Part):
    """Rights on patterns of contract names."""

    publishes: tuple[Pattern, ...] = ()
    reads: tuple[Pattern, ...] = ()
    creates: tuple[Pattern, ...] = ()
    transactions: tuple[str, ...] = ()  # prefixes of transactional ids
    groups: tuple[str, ...] = ()  # prefixes of groups, beside those of the tenant


class Quota(Part):
    """Bytes per second on each broker."""

    produce_bytes: int | None = Field(None, ge=1)
    consume_bytes: int | None = Field(None, ge=1)


class Account(Part):
    name: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    tenant: str
    roles: tuple[str, ...] = Field(min_length=1)
    quota: Quota = Quota()


class Access(Part):
    roles: Mapping[str, Role]
    accounts: tuple[Account, ...]


class Headers(Part):
    minimum: tuple[str, ...]
    classes: Mapping[str, tuple[str, ...]]
    signed: tuple[str, ...]


class PolicyException(Part):
    """A rule that one topic may break until a day."""

    rule: str
    topic: str
    reason: str = Field(min_length=10)
    owner: str
    expires: date


class Policy(Part):
    """All of it; each field is a file of `contracts/policy`."""

    environments: Mapping[str, Environment]
    tenants: Mapping[str, Tenant]
    contexts: Mapping[str, Context]
    teams: Mapping[str, Team]
    classes: Mapping[str, ClassPolicy]
    keys: Keys
    retention: tuple[RetentionRule, ...]
    access: Access
    headers: Headers
    nodes: Mapping[str, frozenset[str]]
    exceptions: tuple[PolicyException, ...]

    @cached_property
    def home(self) -> str:
        """The tenant whose onex names carry no prefix."""
        [home] = [name for name, tenant in self.tenants.items() if tenant.home]
        return home

    def is_onex_entity(self, domain: str, entity: str) -> bool:
        return self.key_rule(f"{domain}.{entity}.") is not None

    def require_known(self, name: TopicName) -> None:
        """Refuse a tenant or a context that is not in the vocabulary, with the nearest that is."""
        for what, known in (("tenant", self.tenants), ("context", self.contexts)):
            word = getattr(name, what, None)
            if word is not None and word not in known:
                raise broken(
                    str(name),
                    f"has {what} {word!r}, which the policy does not know"
                    f"{suggestion(word, list(known))}",
                )

    def key_rule(self, kind: str) -> KeyRule | None:
        """Who writes events of this kind, and by which key; the first that covers it."""
        return next((rule for rule in self.keys.events if rule.covers(kind)), None)

    def retention_of(self, kind: str) -> timedelta | None:
        """How long specification 002 keeps events of this kind."""
        return next(
            (rule.retention for rule in self.retention if fnmatchcase(kind, rule.kinds)), None
        )

    def topics_in(
        self, names: Iterable[LogicalName], environment: str
    ) -> Iterator[tuple[LogicalName, str, str]]:
        """Every topic that the environment has: contract name, tenant, broker's name."""
        here = self.environments[environment].topics
        for name in names:
            if not any(pattern.matches(str(name)) for pattern in here):
                continue
            for tenant, wanted in self.tenants.items():
                if isinstance(name, LegacyName) and tenant != self.home:
                    continue
                if any(pattern.matches(str(name)) for pattern in wanted.topics):
                    found = physical(name, environment=environment, tenant=tenant, home=self.home)
                    yield name, tenant, str(found)

    def resources_of(
        self, pattern: NamePattern, environment: str, tenant: str
    ) -> tuple[Resource, ...]:
        """The access rules' view of a pattern of contract names, for one tenant."""
        parts = pattern.parts
        if parts[0] not in ("onex", "node") or (parts[1:2] and parts[1] in STREAM_CLASSES):
            text = f"{environment}.{tenant}.{pattern.text}"
        else:
            text = pattern.text if tenant == self.home else f"{tenant}.{pattern.text}"
        return resources(
            NamePattern(text),
            tenants=list(self.tenants),
            contexts=list(self.contexts),
            home=self.home,
        )

    def defects(self) -> Iterator[tuple[str, str]]:
        """What its parts say that does not fit together: the file, and the sentence."""
        homes = [name for name, tenant in self.tenants.items() if tenant.home]
        if len(homes) != 1:
            yield "tenants", f"home tenants are {homes}; exactly one is needed"
        if CANARY_TENANT in self.tenants:
            yield "tenants", f"{CANARY_TENANT!r} is reserved for the platform's canary"
        for tenant in self.tenants.keys() & NOT_FOR_TENANTS:
            yield "tenants", f"{tenant!r} is an environment or a dialect's first word"
        for name, context in self.contexts.items():
            yield from self._unknown("contexts", f"{name}: team", context.triage.team, self.teams)
        if self.classes.keys() != set(STREAM_CLASSES):
            yield "classes", f"the classes are {', '.join(STREAM_CLASSES)}, no more and no fewer"
        for account in self.access.accounts:
            where = f"account {account.name}:"
            yield from self._unknown("access", f"{where} tenant", account.tenant, self.tenants)
            for role in account.roles:
                yield from self._unknown("access", f"{where} role", role, self.access.roles)
        for exception in self.exceptions:
            yield from self._unknown("exceptions", "owner", exception.owner, self.teams)

    def _unknown(
        self, file: str, what: str, word: str, known: Mapping[str, Any]
    ) -> Iterator[tuple[str, str]]:
        if word not in known:
            yield file, f"{what} {word!r} is not known{suggestion(word, list(known))}"


def read_policy(folder: Path) -> Policy:
    """The policy of a tree of contracts; a defect is named with file, field and value."""
    found, problems = {}, []
    for name in Policy.model_fields:
        document = read_document(folder / f"{name}.yaml")
        problems += [f"{name}.yaml:{found.line}: {found.message}" for found in document.defects]
        found[name] = document.data
    if not problems:
        try:
            policy = Policy.model_validate(found)
            problems = [f"{file}.yaml: {sentence}" for file, sentence in policy.defects()]
        except ValidationError as error:
            problems = [
                f"{'.'.join(map(str, defect.route))}: {defect.message}" for defect in explain(error)
            ]
    if problems:
        raise ConfigurationError(
            f"The policy in {folder} is wrong: {'; '.join(problems)}.",
            hint="docs/topics explains the files.",
        )
    return policy


@cache
def load_policy() -> Policy:
    """The policy of this installation, read once per process."""
    return read_policy(project_folder("contracts") / "policy")
