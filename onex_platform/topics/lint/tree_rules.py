"""Rules that look beyond one contract: at its files, and at the contracts around it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from onex_platform.domain.headers import PII_LEVELS, field_name
from onex_platform.topics.contract import FAILURE_ROOM, TELEMETRY, TopicContract
from onex_platform.topics.documents import read_document
from onex_platform.topics.grammar import suggestion
from onex_platform.topics.lint.rule import EnumStage, Finding, Rule, Subject
from onex_platform.topics.migration_intent import MIGRATION_FILE, intent_defects, parse_intent
from onex_platform.topics.schemas import Schema, SchemaError, read_schema
from onex_platform.topics.schemas.compatibility import breaks
from onex_platform.topics.schemas.generated import generated_schema

_RFC = "rfc.md"
_RFC_PARTS = ("Owner:", "Rotation:", "Data classification:", "Objectives:", "Deprecation gates:")


def _between(kind: str) -> Callable[[Subject], Iterator[Finding]]:
    def check(subject: Subject) -> Iterator[Finding]:
        for found in subject.tree.disagreements.get(subject.contract.topic, ()):
            if found.kind == kind:
                yield Finding(found.message, (found.field,))

    return check


def _pair(subject: Subject) -> Iterator[Finding]:
    contract = subject.contract
    if (contract.stream_class == "qrs") != (contract.pair is not None):
        yield Finding(f"pair={contract.pair!r}: qrs topics have one, no other does", ("pair",))
    elif contract.pair is not None:
        other = subject.tree.contracts.get(contract.pair)
        if other is None or other.pair != contract.topic:
            near = suggestion(contract.pair, list(subject.tree.contracts))
            yield Finding(
                f"pair={contract.pair!r}: no qrs topic that names this one as its pair{near}",
                ("pair",),
            )


def _named_failure_topics(contract: TopicContract) -> Iterator[tuple[str, str, str]]:
    """Field, stream class and name of the topics that a failing record goes to."""
    if contract.dead_letters is not None:
        yield "dead_letters", "dlt", contract.dead_letters
    if contract.retry is not None:
        yield "retry", "rty", contract.retry.topic


def _failure_topics(subject: Subject) -> Iterator[Finding]:
    contract = subject.contract
    if contract.retry is not None and contract.dead_letters is None:
        yield Finding("retry without dead_letters: the last attempt leads nowhere", ("retry",))
    for field, stream_class, topic in _named_failure_topics(contract):
        found = subject.tree.contracts.get(topic)
        if found is None or found.stream_class != stream_class:
            near = suggestion(topic, list(subject.tree.contracts))
            yield Finding(f"{field}={topic!r}: no {stream_class} topic{near}", (field,))


def _failure_room(subject: Subject) -> Iterator[Finding]:
    largest = subject.contract.max_message
    if largest is None:
        return
    for field, _, topic in _named_failure_topics(subject.contract):
        found = subject.tree.contracts.get(topic)
        if found is not None and (found.max_message or 0) < largest + FAILURE_ROOM:
            yield Finding(
                f"max_message={largest:d}: {field} topic {topic} has to take at least "
                f"{largest + FAILURE_ROOM} bytes, for the record with its failure",
                ("max_message",),
            )


def _migration(subject: Subject) -> Iterator[Finding]:
    if MIGRATION_FILE not in subject.files:
        return
    document = read_document(subject.files[MIGRATION_FILE])
    intent, defects = parse_intent(document)
    if intent is not None:
        defects = list(intent_defects(subject.contract, intent, subject.tree.contracts))
    for defect in defects:
        line = document.line_of(*defect.route)
        yield Finding(defect.message, file=MIGRATION_FILE, line=line)


def _rfc(subject: Subject) -> Iterator[Finding]:
    if _RFC not in subject.files:
        yield Finding(f"there is no {_RFC}: a new topic is asked for in writing")
        return
    text = subject.files[_RFC].read_text(encoding="utf-8", errors="replace")
    if missing := [part for part in _RFC_PARTS if part not in text]:
        yield Finding(f"the request lacks {', '.join(missing)}", file=_RFC)


def _one_schema_each(subject: Subject) -> Iterator[Finding]:
    for part in ("value", "key"):
        found = getattr(subject.schemas, part)
        if len(found) != 1:
            yield Finding(
                f"{part} schemas are {', '.join(found) or 'missing'}; one {part}.schema.json, "
                ".avsc or .proto is needed"
            )


def _sound_schemas(subject: Subject) -> Iterator[Finding]:
    for name in (*subject.schemas.value, *subject.schemas.key):
        try:
            read_schema(subject.files[name]).parse()
        except SchemaError as error:
            yield Finding(str(error), file=name)


def _format(subject: Subject) -> Iterator[Finding]:
    contract, schema = subject.contract, subject.schemas.the("value")
    if schema is None:
        return
    if contract.stream_class is None and schema.format != "JSON":
        yield Finding(
            f"the value schema is {schema.format}; onex topics have JSON Schema",
            file=subject.schemas.value[0],
        )
    if contract.stream_class is not None and schema.format == "JSON" and not contract.bridge:
        yield Finding(
            "the value schema is JSON; namespace topics have Avro or Protobuf, and JSON only with "
            "bridge: true",
            file=subject.schemas.value[0],
        )


def _samples(subject: Subject) -> Iterator[Finding]:
    schema = _sound(subject.schemas.the("value"))
    names = [name for name in subject.files if name.startswith("samples/")]
    if not names:
        yield Finding("there is no sample in samples/")
    for name in names:
        try:
            value = json.loads(subject.files[name].read_bytes())
            if schema is not None:
                schema.check(value)
        except SchemaError as error:
            yield Finding(f"the schema refuses it at {error}", file=name)
        except ValueError as error:
            line = getattr(error, "lineno", 1)
            yield Finding(f"is not JSON: {error}", file=name, line=line)


def _key_in_sample(subject: Subject) -> Iterator[Finding]:
    schema = _sound(subject.schemas.the("key"))
    if schema is None:
        return
    for name in (name for name in subject.files if name.startswith("samples/")):
        try:
            key = _key_of(json.loads(subject.files[name].read_bytes()), subject.contract.key)
        except ValueError:
            continue
        if key is not None:
            try:
                schema.check(key)
            except SchemaError as error:
                yield Finding(f"the key schema refuses {key!r} at {error}", file=name)


def _key_field(subject: Subject) -> Iterator[Finding]:
    schema, key = _sound(subject.schemas.the("value")), subject.contract.key
    if schema is not None and not any(_is_key(field.path, key) for field in schema.fields()):
        yield Finding(
            f"key={key!r}: the value schema has no such field, and the id must be in the value",
            ("key",),
        )


def _generated(subject: Subject) -> Iterator[Finding]:
    expected, found = generated_schema(subject.contract), subject.schemas.the("value")
    if expected is not None and found is not None and found.text != expected:
        yield Finding(
            "differs from the model that reads and writes it; `onex topics schemas` writes it anew",
            file=subject.schemas.value[0],
        )


def _released(subject: Subject) -> Iterator[Finding]:
    """A change that readers of the released version can't follow needs a new version."""
    for part in ("value", "key"):
        now = _sound(subject.schemas.the(part))
        for name, path in subject.files.items():
            if now is None or not name.startswith(f"released/{part}.schema."):
                continue
            before = read_schema(path)
            if before.canonical() == now.canonical():
                continue
            for found in breaks(before, now, subject.contract.compatibility):
                yield Finding(
                    f"breaks the released version ({found}); make a new version of the topic",
                    file=getattr(subject.schemas, part)[0],
                )


def _pii_levels(subject: Subject) -> Iterator[Finding]:
    for name, level, path in _private_fields(subject):
        if level not in PII_LEVELS:
            near = suggestion(level, PII_LEVELS)
            yield Finding(
                f"{path}: pii {level!r} is none of {', '.join(PII_LEVELS)}{near}", file=name
            )


def _pii_in_key(subject: Subject) -> Iterator[Finding]:
    contract, headers = subject.contract, set(subject.contract.headers.required)
    for name, level, path in _private_fields(subject):
        in_key = name in subject.schemas.key or _is_key(path, contract.key)
        header = f"x-{field_name(path).replace('_', '-')}"
        if level in ("low", "high") and in_key:
            yield Finding(f"{path}: pii {level!r} in the key, which nothing encrypts", file=name)
        elif level in ("low", "high") and header in headers and header not in _TOKEN_HEADERS:
            yield Finding(f"{path}: pii {level!r} is also the header {header}", file=name)


# Who acts for whom is a token that the gateway checked, not a person's data.
_TOKEN_HEADERS = frozenset({"x-actor", "x-scope", "x-tenant"})


def _pii_encryption(subject: Subject) -> Iterator[Finding]:
    if subject.contract.encryption == "envelope" or subject.contract.stream_class in TELEMETRY:
        return
    for name, level, path in _private_fields(subject):
        if level == "high":
            yield Finding(f"{path}: pii 'high' needs encryption: envelope", file=name)


def _pii_telemetry(subject: Subject) -> Iterator[Finding]:
    if subject.contract.stream_class in TELEMETRY:
        for name, level, path in _private_fields(subject):
            if level == "high":
                yield Finding(
                    f"{path}: pii 'high' is refused on {subject.contract.stream_class}; redact it",
                    file=name,
                )


def _private_fields(subject: Subject) -> Iterator[tuple[str, str, str]]:
    """Annotated fields: the schema's file, the level, the path."""
    for part in ("value", "key"):
        schema = _sound(subject.schemas.the(part))
        if schema is not None:
            for field in schema.fields():
                if field.pii != "none":
                    yield getattr(subject.schemas, part)[0], field.pii, field.path


def _sound(schema: Schema | None) -> Schema | None:
    """The schema, unless it is broken: another rule says so."""
    if schema is None:
        return None
    try:
        schema.parse()
    except SchemaError:
        return None
    return schema


def _is_key(path: str, key: str) -> bool:
    """Whether a field is the key: of the value, or of the payload in an envelope."""
    return path in (key, f"payload.{key}")


def _key_of(value: Any, key: str) -> Any:
    if not isinstance(value, dict):
        return None
    inner = value.get("payload")
    return value.get(key, inner.get(key) if isinstance(inner, dict) else None)


# A rule of names: it holds for names that break another one, too.
COLLISION_RULE = Rule(
    "X001",
    "no names that differ by '.' and '_' only",
    "decisions §6",
    _between("collision"),
    EnumStage.NAME,
)
TREE_RULES = tuple(
    Rule(id, title, source, check, EnumStage.TREE)
    for id, title, source, check in (
        ("X002", "one topic and one domain, one contract", "decisions §5", _between("repeated")),
        ("X003", "a legacy topic is like its twin", "002 §9", _between("twin")),
        ("C008", "qrs topics come in pairs", "004 qrs", _pair),
        ("C009", "retry and dead letters lead to their topics", "004 failure", _failure_topics),
        ("C010", "retry and dead letters have room for records", "004 failure", _failure_room),
        ("M001", "a move leads on, has a way back", "002 §9, 004 migration", _migration),
        ("O003", "the request for the topic is complete", "004 governance", _rfc),
        ("S001", "one schema for the value, one for the key", "004 schemas", _one_schema_each),
        ("S002", "schemas are sound", "004 schemas", _sound_schemas),
        ("S003", "the format suits the dialect", "004 schemas", _format),
        ("S004", "samples fit the schema", "004 contracts", _samples),
        ("S005", "keys of samples fit the key schema", "004 contracts", _key_in_sample),
        ("S006", "generated schemas equal the models", "002 §4", _generated),
        ("S007", "nothing breaks what was released", "004 versioning", _released),
        ("K004", "the key is a field of the value", "004 partitioning", _key_field),
        ("P001", "pii levels are none, low, high", "004 privacy", _pii_levels),
        ("P002", "no pii in keys and headers", "004 privacy", _pii_in_key),
        ("P003", "high pii is encrypted", "004 privacy", _pii_encryption),
        ("P004", "no high pii in met, aud, log", "004 privacy", _pii_telemetry),
    )
)
