"""What a rule is, and what it judges."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from onex_platform.topics.contract import TopicContract
from onex_platform.topics.disagreements import Disagreement, disagreements
from onex_platform.topics.documents import Document, Route
from onex_platform.topics.policy import Policy
from onex_platform.topics.schemas import SchemaPair

CONTRACT_FILE = "contract.yaml"


class EnumSeverity(StrEnum):
    ERROR = "error"
    WARNING = "warning"


class EnumStage(StrEnum):
    """Rules of a later stage are asked only if no earlier one was broken: they'd follow from it."""

    FILE = "file"
    NAME = "name"
    CONTRACT = "contract"  # needs nothing but the contract and the policy
    TREE = "tree"  # looks at other contracts and files too


class Finding(NamedTuple):
    """A broken rule: the sentence, and where it is broken."""

    message: str
    route: Route = ()
    file: str = CONTRACT_FILE
    line: int | None = None  # where `route` can't say it


class Tree:
    """All contracts together, and what is wrong between them."""

    def __init__(self, contracts: Iterable[TopicContract] = ()) -> None:
        self.contracts = {contract.topic: contract for contract in contracts}

    @cached_property
    def disagreements(self) -> dict[str, list[Disagreement]]:
        """By topic."""
        found = defaultdict(list)
        for disagreement in disagreements(list(self.contracts.values())):
            found[disagreement.topic].append(disagreement)
        return found


@dataclass(frozen=True)
class Subject:
    """One contract as rules see it."""

    contract: TopicContract
    policy: Policy
    document: Document
    today: date
    tree: Tree

    @property
    def folder(self) -> Path:
        return self.document.path.parent

    @cached_property
    def files(self) -> dict[str, Path]:
        """The files beside the contract, by their path below its folder."""
        return {
            path.relative_to(self.folder).as_posix(): path
            for path in sorted(self.folder.rglob("*"))
            if path.is_file()
        }

    @cached_property
    def schemas(self) -> SchemaPair:
        """The schemas beside the contract."""
        return SchemaPair.of(self.files)


Check = Callable[[Subject], Iterator[Finding]]


@dataclass(frozen=True)
class Rule:
    """A line of the table: what is judged, how severely, and who says so."""

    id: str
    title: str
    source: str
    check: Check
    stage: EnumStage = EnumStage.CONTRACT
    severity: EnumSeverity = EnumSeverity.ERROR
