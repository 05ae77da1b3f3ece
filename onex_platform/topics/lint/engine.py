"""One run over a tree of contracts: every violation of every file, in the order of the files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path, PurePosixPath

from pydantic import ValidationError

from onex_platform.base.errors import ConfigurationError
from onex_platform.topics.contract import TopicContract
from onex_platform.topics.contract_folders import folder_of
from onex_platform.topics.documents import Document, read_document
from onex_platform.topics.fields import explain
from onex_platform.topics.lint.contract_rules import CONTRACT_RULES, NAME_RULES
from onex_platform.topics.lint.rule import (
    CONTRACT_FILE,
    EnumSeverity,
    EnumStage,
    Finding,
    Rule,
    Subject,
    Tree,
)
from onex_platform.topics.lint.tree_rules import COLLISION_RULE, TREE_RULES
from onex_platform.topics.migration_intent import MIGRATION_FILE
from onex_platform.topics.policy import Policy, PolicyException, read_policy
from onex_platform.topics.reading import contract_files

_POLICY = "policy"
_BESIDE = (
    CONTRACT_FILE,
    MIGRATION_FILE,
    "rfc.md",
    "value.schema.*",
    "key.schema.*",
    "samples/*.json",
)
_RELEASED = ("released/value.schema.*", "released/key.schema.*")


@dataclass(frozen=True, order=True)
class Violation:
    """A broken rule with its place."""

    path: str
    line: int
    rule: str
    message: str
    severity: EnumSeverity
    topic: str | None = None


@dataclass(frozen=True)
class LintReport:
    """What one run found; `excused` counts what exceptions cover."""

    violations: tuple[Violation, ...]
    contracts: int
    excused: int

    @property
    def errors(self) -> int:
        return self.count(EnumSeverity.ERROR)

    def count(self, severity: EnumSeverity) -> int:
        return Counter(found.severity for found in self.violations)[severity]


def _by_the_engine(_subject: Subject) -> Iterator[Finding]:
    """Such a rule is judged while files are read."""
    return iter(())


_UNREADABLE, _TWICE, _FIELD, _FOLDER, _STRAY, _WHOLE = FILE_RULES = tuple(
    Rule(id, title, source, _by_the_engine, EnumStage.FILE)
    for id, title, source in (
        ("F001", "files are YAML in UTF-8", "004 contracts"),
        ("F002", "no key stands twice", "004 contracts"),
        ("F003", "fields are complete and of their kind", "004 contracts"),
        ("F004", "a contract stands where its name leads", "004 contracts"),
        ("F005", "no stray files", "004 contracts"),
        ("F006", "the policy is whole", "004 governance"),
    )
)
_GRAMMAR = Rule("N001", "names are in the grammar", "002 §3, 004", _by_the_engine, EnumStage.FILE)
_EXPIRED, _UNUSED = EXCEPTION_RULES = tuple(
    Rule(id, title, "004 governance", _by_the_engine, EnumStage.FILE)
    for id, title in (
        ("E001", "no exception has expired"),
        ("E002", "every exception is used"),
    )
)
RULES = (
    *FILE_RULES,
    _GRAMMAR,
    *NAME_RULES,
    COLLISION_RULE,
    *CONTRACT_RULES,
    *TREE_RULES,
    *EXCEPTION_RULES,
)


def lint(root: Path, *, rules: Collection[Rule] = RULES, today: date | None = None) -> LintReport:
    """Judge every contract below `root` by the policy beside them."""
    return _Run(root, rules, today or datetime.now(UTC).date()).report()


class _Run:
    """The state of one run."""

    def __init__(self, root: Path, rules: Collection[Rule], today: date) -> None:
        self._root = root
        self._rules = rules
        self._today = today
        self._found: list[Violation] = []

    def report(self) -> LintReport:
        paths = contract_files(self._root)
        try:
            policy = read_policy(self._root / _POLICY)
        except ConfigurationError as error:
            self._note(_WHOLE, self._root / _POLICY, 1, error.message.rstrip("."))
            return LintReport(tuple(self._found), len(paths), 0)
        read = [found for path in paths if (found := self._read(path))]
        tree = Tree(contract for contract, _ in read)
        for contract, document in read:
            self._judge(Subject(contract, policy, document, self._today, tree))
        self._look_for_strays()
        return self._apply_exceptions(policy, len(paths))

    def _read(self, path: Path) -> tuple[TopicContract, Document] | None:
        document = read_document(path)
        for defect in document.defects:
            rule = _TWICE if defect.is_repeated_key else _UNREADABLE
            self._note(rule, path, defect.line, defect.message)
        if any(not defect.is_repeated_key for defect in document.defects):
            return None
        try:
            return TopicContract.model_validate(document.data), document
        except ValidationError as error:
            for found in explain(error):
                is_name = found.route in (("topic",), ("legacy_of",)) and "missing" not in (
                    found.message
                )
                self._note(
                    _GRAMMAR if is_name else _FIELD,
                    path,
                    document.line_of(*found.route),
                    found.message,
                )
            return None

    def _judge(self, subject: Subject) -> None:
        """Ask the rules stage by stage; what breaks one of a stage is not asked by the next."""
        for stage in (EnumStage.NAME, EnumStage.CONTRACT, EnumStage.TREE):
            before = len(self._found)
            for rule in self._rules:
                if rule.stage is stage:
                    for finding in rule.check(subject):
                        self._note_finding(rule, subject, finding)
            if stage is EnumStage.NAME:
                if len(self._found) > before:
                    return
                self._judge_folder(subject)

    def _judge_folder(self, subject: Subject) -> None:
        try:
            expected = folder_of(subject.contract.name, subject.policy.is_onex_entity)
        except ConfigurationError:
            return  # a name that has no folder breaks a rule of its own
        folder = PurePosixPath(subject.folder.relative_to(self._root).as_posix())
        if folder != expected:
            message = f"topic={subject.contract.topic!r}: its folder is {expected}"
            self._note_finding(_FOLDER, subject, Finding(message, ("topic",)))

    def _look_for_strays(self) -> None:
        known = {self._root / _POLICY / f"{name}.yaml" for name in Policy.model_fields}
        for pattern in (*_BESIDE, *_RELEASED):
            known.update(self._root.glob(f"*/*/*/*/{pattern}"))
        for path in sorted(self._root.rglob("*")):
            hidden = any(part.startswith(".") for part in path.relative_to(self._root).parts)
            if path.is_file() and path not in known and not hidden:
                self._note(_STRAY, path, 1, "is no file of a contract or of the policy")

    def _apply_exceptions(self, policy: Policy, contracts: int) -> LintReport:
        used: set[int] = set()
        kept: list[Violation] = []
        for violation in self._found:
            covering = [
                at
                for at, exception in enumerate(policy.exceptions)
                if (exception.rule, exception.topic) == (violation.rule, violation.topic)
            ]
            used.update(covering)
            if not any(policy.exceptions[at].expires >= self._today for at in covering):
                kept.append(violation)
        excused, self._found = len(self._found) - len(kept), kept
        self._judge_exceptions(policy.exceptions, used)
        return LintReport(tuple(sorted(self._found)), contracts, excused)

    def _judge_exceptions(self, exceptions: tuple[PolicyException, ...], used: set[int]) -> None:
        path = self._root / _POLICY / "exceptions.yaml"
        document = read_document(path)
        for at, exception in enumerate(exceptions):
            what = f"the exception to {exception.rule} for {exception.topic}"
            if exception.expires < self._today:
                message = f"{what} expired on {exception.expires}; {exception.owner} answers for it"
                self._note(_EXPIRED, path, document.line_of(at), message)
            elif at not in used:
                message = f"{what} covers nothing; take it away"
                self._note(_UNUSED, path, document.line_of(at), message)

    def _note_finding(self, rule: Rule, subject: Subject, finding: Finding) -> None:
        line = finding.line or (
            subject.document.line_of(*finding.route) if finding.file == CONTRACT_FILE else 1
        )
        path = subject.folder / finding.file
        self._note(rule, path, line, finding.message, subject.contract.topic)

    def _note(
        self, rule: Rule, path: Path, line: int, message: str, topic: str | None = None
    ) -> None:
        if rule in self._rules:
            place = path.relative_to(self._root).as_posix()
            self._found.append(Violation(place, line, rule.id, message, rule.severity, topic))
