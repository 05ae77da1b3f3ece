"""The difference between what a cluster has and what it should have, as steps in a file.

Pure. A plan names the state that it was made for. Steps that take something away need a flag each;
what can't be done, or would break what is there, is refused with the way out and never planned.
Strangers are only reported: topics and subjects without contract, rights and quotas of accounts
that the policy does not know, and dangerous rights among them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import date
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, computed_field, model_validator

from onex_platform.engines.kafka.access import ANY_HOST, Right
from onex_platform.engines.kafka.topic_admin import TopicLayout
from onex_platform.governance.state import ClusterState, principal_of
from onex_platform.topics.catalogue import Catalogue
from onex_platform.topics.policy import Policy

CREATION, SETTING, DELETION, REVOCATION = "create-topic", "set-topic", "delete-topic", "revoke"

_EVERYBODY, _EVERYTHING = "User:*", "*"
_KEPT_TIMES = ("retention.ms", "delete.retention.ms")  # of records, of tombstones
_FOREVER = -1


class EnumDanger(StrEnum):
    """What a step may destroy; each has a flag of its own."""

    SHORTER_RETENTION = "shorter-retention"
    DELETION = "delete"
    REVOCATION = "revoke"


_DANGERS = {DELETION: EnumDanger.DELETION, REVOCATION: EnumDanger.REVOCATION}


class Step(BaseModel):
    """One change: what it is about, its kind, and the value before and after."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str
    name: str
    detail: dict[str, Any] = {}
    before: Any = None
    after: Any = None

    @model_validator(mode="before")
    @classmethod
    def _is_judged_anew(cls, step: dict[str, Any]) -> dict[str, Any]:
        """A file shows the danger to its readers; what it says of it counts for nothing."""
        return {name: value for name, value in step.items() if name != "danger"}

    @computed_field  # type: ignore[prop-decorator]
    @property
    def danger(self) -> EnumDanger | None:
        """What it may destroy, by what it does."""
        if self.kind in _DANGERS:
            return _DANGERS[self.kind]
        if self.kind == SETTING and _loses(self.detail["setting"], self.before, self.after):
            return EnumDanger.SHORTER_RETENTION
        return None

    def __str__(self) -> str:
        what = f"{self.kind}  {self.name}"
        if self.kind in (SETTING, "set-quota", "set-mode"):
            what += f"  {self.detail.get('setting', '')} {self.before} → {self.after}"
        elif self.kind in ("grant", REVOCATION):
            what += f"  {self.detail['operation']} {self.detail['resource']} "
            what += f"{self.detail['pattern']} {self.detail['name']}"
        return f"{what}  (needs --allow-{self.danger})" if self.danger else what


def as_found(step: Step, found: ClusterState) -> Step:
    """The step with what the cluster has now as its value before, whatever a file says of it."""
    if step.kind != SETTING or step.name not in found.topics:
        return step
    before = found.topics[step.name].config.get(step.detail["setting"])
    return step.model_copy(update={"before": before})


class Plan(BaseModel):
    """Steps for one environment, and the state that they lead away from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    environment: str
    seen: str
    steps: tuple[Step, ...]
    refusals: tuple[str, ...] = ()
    strangers: tuple[str, ...] = ()
    dangers: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.steps

    @property
    def agrees(self) -> bool:
        """Whether the cluster is as it should be; strangers are nobody's fault."""
        return not (self.steps or self.refusals or self.dangers)

    def new_topics(self) -> list[TopicLayout]:
        """The creating part of the plan."""
        return [
            TopicLayout(step.name, **step.detail) for step in self.steps if step.kind == CREATION
        ]


def make_plan(
    found: ClusterState,
    wanted: ClusterState,
    *,
    environment: str,
    ended: Collection[str] = (),
    accounts: Collection[str] = (),
    observer: str = "this client",
) -> Plan:
    """The steps from found to wanted; `ended` are topics whose deprecation is over."""
    refusals = [
        f"{name} is not visible to {observer}, who needs the right to describe it"
        for name in sorted(found.hidden)
    ]
    steps = [
        *_topic_steps(found, wanted, ended, refusals),
        *_right_steps(found, wanted, accounts),
        *_quota_steps(found, wanted, accounts),
        *_subject_steps(found, wanted, refusals),
    ]
    return Plan(
        environment=environment,
        seen=found.fingerprint(),
        steps=tuple(steps),
        refusals=tuple(refusals),
        strangers=(
            *sorted(found.strangers),
            *_foreign_rights(found, accounts),
            *_foreign_quotas(found, accounts),
        ),
        dangers=tuple(_dangerous(found)),
        notes=tuple(_notes(found, observer)),
    )


def _notes(found: ClusterState, observer: str) -> Iterator[str]:
    """What the plan leaves out, because the cluster does not have it or does not show it."""
    if found.hides_rights:
        yield (
            f"{observer} may not list rights: rights and quotas are not compared; an "
            "administrator's `onex topics drift` compares them"
        )
    elif found.rights is None:
        yield "the cluster has no authoriser: rights and quotas are not planned"
    if found.subjects is None:
        yield "no schema registry is known (ONEX_SCHEMAS_URL): subjects are not planned"


def ended_topics(catalogue: Catalogue, policy: Policy, environment: str, today: date) -> set[str]:
    """Broker's names of topics whose announced end has passed; one that moves ends by its phases,
    when everything was measured that a date does not know."""
    over = [
        contract.name
        for contract in catalogue
        if contract.topic not in catalogue.intents
        and contract.deprecation.ends
        and contract.deprecation.ends < today
    ]
    return {name for _, _, name in policy.topics_in(over, environment)}


def _topic_steps(
    found: ClusterState, wanted: ClusterState, ended: Collection[str], refusals: list[str]
) -> Iterator[Step]:
    for name, layout in sorted(wanted.topics.items()):
        if name in found.hidden:
            continue
        if name in ended:
            if name in found.topics:
                yield Step(kind=DELETION, name=name)
        elif name not in found.topics:
            yield Step(kind=CREATION, name=name, detail=_as_detail(layout))
        else:
            refusals += _impossible(layout, found.topics[name])
            yield from _setting_steps(layout, found.topics[name])


def _impossible(wanted: TopicLayout, found: TopicLayout) -> Iterator[str]:
    if wanted.partitions != found.partitions:
        yield (
            f"{wanted.name} has {found.partitions} partitions, the contract says "
            f"{wanted.partitions}: keys would move to others; make a new version of the topic"
        )
    if wanted.replication_factor != found.replication_factor:
        yield (
            f"{wanted.name} has {found.replication_factor} copies, the contract says "
            f"{wanted.replication_factor}: reassign its partitions with Kafka's own tool"
        )


def _setting_steps(wanted: TopicLayout, found: TopicLayout) -> Iterator[Step]:
    for setting, value in sorted(wanted.config.items()):
        before = found.config.get(setting)
        if before != value:
            yield Step(
                kind=SETTING,
                name=wanted.name,
                detail={"setting": setting},
                before=before,
                after=value,
            )


def _loses(setting: str, before: str | None, after: str) -> bool:
    """Whether the broker would drop what it keeps now: by time, or by another way to clean up."""
    if setting in _KEPT_TIMES:
        return _keeps_less(before, after)
    return setting == "cleanup.policy" and not set(after.split(",")) <= set(
        (before or after).split(",")
    )


def _keeps_less(before: str | None, after: str) -> bool:
    kept, keeps = int(before or _FOREVER), int(after)
    return keeps != _FOREVER and (kept == _FOREVER or keeps < kept)


def _right_steps(
    found: ClusterState, wanted: ClusterState, accounts: Collection[str]
) -> Iterator[Step]:
    if found.rights is None or wanted.rights is None:
        return
    ours = {principal_of(account) for account in accounts}
    for right in sorted(wanted.rights - found.rights):
        yield _right_step("grant", right)
    for right in sorted(found.rights - wanted.rights):
        if right.principal in ours:
            yield _right_step(REVOCATION, right)


def _right_step(kind: str, right: Right) -> Step:
    detail = {
        field: getattr(right, field) for field in ("resource", "pattern", "name", "operation")
    }
    return Step(
        kind=kind,
        name=right.principal,
        detail=detail
        | ({"denies": True} if right.denies else {})
        | ({"host": right.host} if right.host != ANY_HOST else {}),
    )


def _quota_steps(
    found: ClusterState, wanted: ClusterState, accounts: Collection[str]
) -> Iterator[Step]:
    if found.quotas is None or wanted.quotas is None:
        return
    for account in sorted(accounts):
        has, should = found.quotas.get(account, {}), wanted.quotas.get(account, {})
        for setting in sorted(has.keys() | should.keys()):
            if has.get(setting) != should.get(setting):
                yield Step(
                    kind="set-quota",
                    name=account,
                    detail={"setting": setting},
                    before=has.get(setting),
                    after=should.get(setting),
                )


def _subject_steps(
    found: ClusterState, wanted: ClusterState, refusals: list[str]
) -> Iterator[Step]:
    if found.subjects is None or wanted.subjects is None:
        return
    for name, subject in sorted(wanted.subjects.items()):
        there = found.subjects.get(name)
        # The mode first: a registry's default lets everything pass.
        if there is None or there.mode != subject.mode:
            before = there.mode if there else None
            yield Step(kind="set-mode", name=name, before=before, after=subject.mode)
        if there is None or (there.schema, there.format) != (subject.schema, subject.format):
            detail = {"schema": subject.schema, "format": subject.format}
            yield Step(kind="register-subject", name=name, detail=detail)
        elif there.newer:
            versions = ", ".join(map(str, there.newer))
            refusals.append(
                f"{name} has versions behind the contract's schema ({versions}): delete them in "
                "the registry, or bring them into the contract"
            )


def _foreign_rights(found: ClusterState, accounts: Collection[str]) -> Iterator[str]:
    ours = {principal_of(account) for account in accounts}
    for right in sorted(found.rights or ()):
        if right.principal not in ours and not _is_dangerous(right):
            yield f"right: {right}"


def _foreign_quotas(found: ClusterState, accounts: Collection[str]) -> Iterator[str]:
    for account in sorted((found.quotas or {}).keys() - set(accounts)):
        yield f"quota: of {principal_of(account)}"


def _dangerous(found: ClusterState) -> Iterator[str]:
    return (str(right) for right in sorted(found.rights or ()) if _is_dangerous(right))


def _is_dangerous(right: Right) -> bool:
    """A right of everybody, or to everything."""
    return not right.denies and (
        right.principal == _EVERYBODY or (right.pattern, right.name) == ("literal", _EVERYTHING)
    )


def _as_detail(layout: TopicLayout) -> dict[str, Any]:
    return {
        "partitions": layout.partitions,
        "replication_factor": layout.replication_factor,
        "config": dict(layout.config),
    }
