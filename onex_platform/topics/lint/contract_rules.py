"""Rules about one contract: names, keys, storage, classes. They need no other file.

The catalogue asks them too when it reads a contract, so that nothing that breaks one is ever used.
"""

from __future__ import annotations

from collections.abc import Iterator

from onex_platform.base.errors import ConfigurationError
from onex_platform.domain.events import EnumEventKind
from onex_platform.topics.contract import DEFAULT_PARTITIONS
from onex_platform.topics.contract_folders import folder_of
from onex_platform.topics.grammar import (
    LegacyName,
    OnexName,
    SnapshotName,
    StreamName,
    snapshot_subject,
    suggestion,
)
from onex_platform.topics.lint.rule import EnumSeverity, EnumStage, Finding, Rule, Subject

_DISCOVERY = "discovery"


def _context(subject: Subject) -> Iterator[Finding]:
    name, known = subject.contract.name, list(subject.policy.contexts)
    context = getattr(name, "context", None)
    if context is not None and context not in known:
        near = suggestion(context, known)
        yield Finding(
            f"topic={str(name)!r}: the context {context!r} is not known{near}", ("topic",)
        )


def _discovery(subject: Subject) -> Iterator[Finding]:
    name = subject.contract.name
    if isinstance(name, OnexName) and _DISCOVERY in (name.domain, name.entity):
        yield Finding(
            f"topic={str(name)!r}: discovery asks the registry, not Kafka; such topics are "
            "experimental and need an exception",
            ("topic",),
        )


def _event_kind(subject: Subject) -> Iterator[Finding]:
    name = subject.contract.canonical_name
    if not isinstance(name, OnexName) or _DISCOVERY in (name.domain, name.entity):
        return
    kind, topic = name.event_kind, subject.contract.topic
    if subject.policy.key_rule(kind) is None:
        yield Finding(f"topic={topic!r}: no keying rule covers the event kind {kind!r}", ("topic",))
    elif kind not in set(EnumEventKind):
        near = suggestion(kind, list(EnumEventKind))
        yield Finding(
            f"topic={topic!r}: the event kind {kind!r} is not in EnumEventKind{near}", ("topic",)
        )


def _other_dialect(subject: Subject) -> Iterator[Finding]:
    name = subject.contract.name
    if isinstance(name, StreamName):
        try:
            folder_of(name, subject.policy.is_onex_entity)
        except ConfigurationError as error:
            yield Finding(error.message.rstrip("."), ("topic",))


def _legacy(subject: Subject) -> Iterator[Finding]:
    if warning := subject.contract.warning:
        yield Finding(warning.rstrip("."), ("topic",))


def _dialect_fields(subject: Subject) -> Iterator[Finding]:
    contract = subject.contract
    for field, dialect, word in (
        ("legacy_of", LegacyName, "legacy"),
        ("snapshot_of", SnapshotName, "snapshot"),
    ):
        value = getattr(contract, field)
        if (value is not None) != isinstance(contract.name, dialect):
            yield Finding(f"{field}={value!r}: {word} names have it, no other name does", (field,))


def _snapshot_domain(subject: Subject) -> Iterator[Finding]:
    contract, name = subject.contract, subject.contract.name
    if not isinstance(name, SnapshotName) or contract.snapshot_of is None:
        return
    expected = snapshot_subject(contract.snapshot_of)
    if name.subject != expected:
        yield Finding(
            f"snapshot_of={contract.snapshot_of!r}: its topic is about {expected}, "
            f"not {name.subject}",
            ("snapshot_of",),
        )


def _key(subject: Subject) -> Iterator[Finding]:
    contract, name = subject.contract, subject.contract.canonical_name
    expected = subject.policy.keys.snapshots
    if isinstance(name, SnapshotName) and contract.key != expected:
        yield Finding(f"key={contract.key!r}: a snapshot's key is {expected}", ("key",))
    rule = subject.policy.key_rule(name.event_kind) if isinstance(name, OnexName) else None
    if rule is not None and contract.key != rule.key:
        yield Finding(f"key={contract.key!r}: {rule.kinds} is keyed by {rule.key}", ("key",))


def _random_key(subject: Subject) -> Iterator[Finding]:
    contract = subject.contract
    if isinstance(contract.name, StreamName) and contract.key in subject.policy.keys.random:
        yield Finding(
            f"key={contract.key!r}: means nothing in the domain, so it keeps nothing in order; "
            "use the id of the aggregate",
            ("key",),
        )


def _shards(subject: Subject) -> Iterator[Finding]:
    shards = subject.contract.headers.shards
    if shards is not None and shards.of != subject.contract.key:
        yield Finding(
            f"headers.shards.of={shards.of!r}: the shard is made of the key, "
            f"{subject.contract.key!r}, which stays in the value",
            ("headers", "shards", "of"),
        )


def _producers(subject: Subject) -> Iterator[Finding]:
    contract, name = subject.contract, subject.contract.canonical_name
    if not isinstance(name, OnexName):
        return
    rule = subject.policy.key_rule(name.event_kind)
    if rule is not None and not rule.producers.issuperset(contract.producers):
        allowed = ", ".join(sorted(rule.producers))
        yield Finding(
            f"producers={list(contract.producers)}: {rule.kinds} allows {allowed}", ("producers",)
        )


def _partitions(subject: Subject) -> Iterator[Finding]:
    contract = subject.contract
    if (contract.partitions == DEFAULT_PARTITIONS) == (contract.partitions_reason is not None):
        yield Finding(
            f"partitions={contract.partitions}: {DEFAULT_PARTITIONS} is the rule, and every other "
            "count needs partitions_reason",
            ("partitions",),
        )


def _onex_retention(subject: Subject) -> Iterator[Finding]:
    contract, name = subject.contract, subject.contract.canonical_name
    if not isinstance(name, OnexName) or contract.retention is None:
        return
    expected = subject.policy.retention_of(name.event_kind)
    if expected is not None and contract.retention != expected:
        yield Finding(
            f"retention={contract.retention}: specification 002 keeps {name.event_kind} for "
            f"{expected}",
            ("retention",),
        )


def _onex_compaction(subject: Subject) -> Iterator[Finding]:
    contract = subject.contract
    if isinstance(contract.name, StreamName):
        return
    wanted = "compact" if isinstance(contract.name, SnapshotName) else "delete"
    if contract.cleanup_policy != wanted:
        yield Finding(
            f"cleanup_policy={contract.cleanup_policy!r}: snapshots are compacted, events are not",
            ("cleanup_policy",),
        )


def _compaction_fields(subject: Subject) -> Iterator[Finding]:
    contract = subject.contract
    policy = f"cleanup_policy={contract.cleanup_policy!r}"
    if contract.is_compacted != (contract.compaction is not None):
        yield Finding(
            f"{policy}: compact needs the field compaction, delete forbids it", ("compaction",)
        )
    if (contract.cleanup_policy == "compact") != (contract.retention is None):
        yield Finding(
            f"{policy}: compact needs retention unlimited, delete forbids it", ("retention",)
        )


def _timestamps(subject: Subject) -> Iterator[Finding]:
    contract = subject.contract
    expected = "registry" in contract.consumers
    if isinstance(contract.name, StreamName):
        return
    if expected != (contract.timestamp_type == "LogAppendTime"):
        yield Finding(
            f"timestamp_type={contract.timestamp_type!r}: LogAppendTime where the registry is a "
            "consumer (time is the broker's), CreateTime elsewhere",
            ("timestamp_type",),
        )


def _registration_input(subject: Subject) -> Iterator[Finding]:
    contract = subject.contract
    is_possible = "registry" in contract.consumers and isinstance(contract.canonical_name, OnexName)
    if contract.registration_input and not is_possible:
        yield Finding(
            "registration_input=True: only for events that the registry consumes",
            ("registration_input",),
        )


def _class_retention(subject: Subject) -> Iterator[Finding]:
    contract = subject.contract
    if contract.stream_class is None:
        return
    low, high = subject.policy.classes[contract.stream_class].bounds(critical=contract.critical)
    if contract.retention is None or not low <= contract.retention <= high:
        allowed = f"{low}" if low == high else f"{low} to {high}"
        kept = contract.retention or "unlimited"
        yield Finding(
            f"retention={kept}: {'critical ' * contract.critical}{contract.stream_class} keeps "
            f"records for {allowed}",
            ("retention",),
        )


def _class_compaction(subject: Subject) -> Iterator[Finding]:
    contract = subject.contract
    if contract.stream_class is None:
        return
    may = subject.policy.classes[contract.stream_class].compaction == "optional"
    if contract.is_compacted and not (may and contract.cleanup_policy == "compact,delete"):
        allowed = "delete or compact,delete" if may else "delete"
        yield Finding(
            f"cleanup_policy={contract.cleanup_policy!r}: {contract.stream_class} allows {allowed}",
            ("cleanup_policy",),
        )


def _class_tiering(subject: Subject) -> Iterator[Finding]:
    contract = subject.contract
    if contract.stream_class is None or contract.is_compacted:
        return
    tiered = subject.policy.classes[contract.stream_class].tiered
    expected = tiered == "always" or (tiered == "critical" and contract.critical)
    if contract.tiered_storage != expected:
        yield Finding(
            f"tiered_storage={contract.tiered_storage}: tiered storage of "
            f"{contract.stream_class} is {tiered}",
            ("tiered_storage",),
        )


def _tiered_compaction(subject: Subject) -> Iterator[Finding]:
    if subject.contract.tiered_storage and subject.contract.is_compacted:
        yield Finding("tiered_storage=True: Kafka tiers no compacted topic", ("tiered_storage",))


def _one_command_consumer(subject: Subject) -> Iterator[Finding]:
    contract = subject.contract
    if contract.stream_class == "cmd" and len(contract.consumers) != 1:
        yield Finding(
            f"consumers={list(contract.consumers)}: a command has one consumer, the authority",
            ("consumers",),
        )


def _table(subject: Subject) -> Iterator[Finding]:
    contract = subject.contract
    if (contract.stream_class == "cdc") != (contract.table is not None):
        yield Finding(
            f"table={contract.table!r}: cdc topics name the table that they follow, no other does",
            ("table",),
        )


def _owner(subject: Subject) -> Iterator[Finding]:
    owner, teams = subject.contract.owner, list(subject.policy.teams)
    if owner not in teams:
        near = suggestion(owner, teams)
        yield Finding(f"owner={owner!r}: no team with a rotation{near}", ("owner",))


def _roles(subject: Subject) -> Iterator[Finding]:
    known = subject.policy.access.roles
    for field in ("producers", "consumers"):
        for at, role in enumerate(getattr(subject.contract, field)):
            if role not in known:
                near = suggestion(role, list(known))
                yield Finding(f"{field}.{at}={role!r}: no role of the policy{near}", (field, at))


def _rights(subject: Subject) -> Iterator[Finding]:
    contract, roles = subject.contract, subject.policy.access.roles
    for field, right in (("producers", "publishes"), ("consumers", "reads")):
        for at, role in enumerate(getattr(contract, field)):
            patterns = getattr(roles[role], right) if role in roles else None
            if patterns is not None and not any(p.matches(contract.topic) for p in patterns):
                yield Finding(
                    f"{field}.{at}={role!r}: nothing that the role {right} covers the topic; "
                    "policy/access.yaml grants it",
                    (field, at),
                )


def _headers(subject: Subject) -> Iterator[Finding]:
    contract, headers = subject.contract, subject.policy.headers
    if contract.stream_class is None:
        return
    wanted = [*headers.minimum, *headers.classes.get(contract.stream_class, ())]
    if contract.signed:
        wanted += headers.signed
    if missing := [name for name in wanted if name not in contract.headers.required]:
        yield Finding(f"headers.required lacks {', '.join(missing)}", ("headers", "required"))


def _deprecation(subject: Subject) -> Iterator[Finding]:
    plan = subject.contract.deprecation
    if (plan.since is None) != (plan.successor is None):
        yield Finding(
            f"deprecation: since={plan.since} and successor={plan.successor!r} come together",
            ("deprecation",),
        )
    elif plan.ends is not None and plan.ends < subject.today:
        yield Finding(
            f"deprecation: the notice ended on {plan.ends}; take the topic away or extend it",
            ("deprecation",),
        )


NAME_RULES = tuple(
    Rule(id, title, source, check, EnumStage.NAME)
    for id, title, source, check in (
        ("N002", "the context is in the vocabulary", "004 taxonomy", _context),
        ("N003", "no discovery over Kafka", "002 §6.4", _discovery),
        ("N004", "an onex name has a keying rule and an event kind", "002 §3, §5", _event_kind),
        ("N005", "a namespace topic leaves onex entities alone", "decisions §6", _other_dialect),
    )
)
CONTRACT_RULES = (
    Rule(
        "N006",
        "legacy names have a successor to move to",
        "002 §9",
        _legacy,
        severity=EnumSeverity.WARNING,
    ),
    *(
        Rule(id, title, source, check)
        for id, title, source, check in (
            (
                "N007",
                "legacy_of and snapshot_of go with their dialects",
                "decisions §6",
                _dialect_fields,
            ),
            ("N008", "a snapshot topic is about its domain", "000", _snapshot_domain),
            ("K001", "keys follow the table of keys", "002 §5", _key),
            ("K002", "no random keys", "004 partitioning", _random_key),
            ("K003", "a shard is made of the key", "004 partitioning", _shards),
            ("R001", "partitions other than 3 have a reason", "002 §8", _partitions),
            ("R002", "onex retention is 002's", "002 §7, §10", _onex_retention),
            ("R003", "snapshots are compacted, onex events are not", "002 §7", _onex_compaction),
            ("R004", "compaction and retention are complete", "000", _compaction_fields),
            ("R005", "time is the broker's where the registry reads", "decisions §2", _timestamps),
            (
                "R006",
                "the fold reads events of the registry's",
                "decisions §3",
                _registration_input,
            ),
            ("C001", "retention is in the class's bounds", "004 matrix", _class_retention),
            ("C002", "compaction is what the class allows", "004 matrix", _class_compaction),
            ("C003", "tiered storage follows the class", "004 matrix", _class_tiering),
            ("C004", "no tiered storage with compaction", "decisions §6", _tiered_compaction),
            ("C005", "a command has one consumer", "004 cmd", _one_command_consumer),
            ("C006", "a cdc topic names its table", "004 cdc", _table),
            ("C007", "headers are complete", "004 headers", _headers),
            ("A001", "producers and consumers are roles", "002 §12", _roles),
            ("A002", "writers of onex events are 002's", "002 §6", _producers),
            ("A003", "roles have the rights that contracts need", "002 §12", _rights),
            ("O001", "the owner is a team with a rotation", "004 governance", _owner),
            ("O002", "the deprecation plan holds", "004 governance", _deprecation),
        )
    ),
)
