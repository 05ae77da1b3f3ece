"""Reading one contract: as strictly as the rules that need nothing but the contract."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import cast

from pydantic import ValidationError

from onex_platform.base.errors import ConfigurationError
from onex_platform.domain.headers import PII_LEVELS, PiiLevel
from onex_platform.topics.contract import TopicContract
from onex_platform.topics.contract_folders import folder_of
from onex_platform.topics.documents import read_document
from onex_platform.topics.fields import explain
from onex_platform.topics.lint.contract_rules import CONTRACT_RULES, NAME_RULES
from onex_platform.topics.lint.rule import CONTRACT_FILE, EnumSeverity, Rule, Subject, Tree
from onex_platform.topics.policy import Policy
from onex_platform.topics.schemas import Schema, SchemaError, read_schema
from onex_platform.topics.schemas.annotated_fields import ANNOTATED


def contract_files(root: Path) -> list[Path]:
    """Every contract below the folder of all contracts."""
    return sorted(root.glob(f"*/*/*/*/{CONTRACT_FILE}"))


def read_contract(path: Path, policy: Policy) -> TopicContract:
    """The contract in a file; a defect is named with file, field, value and what is allowed."""
    document = read_document(path)
    for defect in document.defects:
        raise _defect(path, f"line {defect.line} {defect.message}")
    try:
        contract = TopicContract.model_validate(document.data)
    except ValidationError as error:
        raise _defect(path, "; ".join(found.message for found in explain(error))) from None
    subject = Subject(contract, policy, document, datetime.now(UTC).date(), Tree())
    for rules in (NAME_RULES, CONTRACT_RULES):
        if broken := [found for rule in rules for found in _broken(rule, subject)]:
            raise _defect(path, "; ".join(broken))
    expected = folder_of(contract.name, policy.is_onex_entity)
    if not path.parent.as_posix().endswith(f"/{expected}"):
        raise _defect(path, f"topic={contract.topic!r}: its folder is {expected}")
    return contract.with_private_fields(_private_fields(path.parent))


def _private_fields(folder: Path) -> dict[str, PiiLevel]:
    """What the value's schema says of each field; few schemas say anything, and are then parsed."""
    for path in folder.glob("value.schema.*"):
        if ANNOTATED.search(path.read_text(encoding="utf-8", errors="replace")):
            try:
                return _levels(read_schema(path))
            except SchemaError as error:
                # Without it, fields that are meant to be encrypted would leave in clear.
                raise _defect(path, str(error)) from None
    return {}


def _levels(schema: Schema) -> dict[str, PiiLevel]:
    """The private fields; one that several parts of the schema describe is as private as any of
    them says."""
    schema.parse()
    levels: dict[str, PiiLevel] = {}
    for field in schema.fields():
        if field.pii in PII_LEVELS and field.pii != "none":
            known = levels.get(field.path, "none")
            levels[field.path] = max(known, cast("PiiLevel", field.pii), key=PII_LEVELS.index)
    return levels


def _broken(rule: Rule, subject: Subject) -> list[str]:
    """What the rule finds that no exception covers."""
    excused = any(
        (exception.rule, exception.topic) == (rule.id, subject.contract.topic)
        for exception in subject.policy.exceptions
    )
    if excused or rule.severity is not EnumSeverity.ERROR or rule.id in _JUDGED_BY_DATE:
        return []
    return [finding.message for finding in rule.check(subject)]


# What time brings about fails a build, never a running platform.
_JUDGED_BY_DATE = frozenset({"O002"})


def _defect(path: Path, what: str) -> ConfigurationError:
    place = PurePosixPath(*path.parts[-5:])
    return ConfigurationError(
        f"Topic contract {place}: {what}.", hint=f"Mend {path}; docs/topics has the fields."
    )
