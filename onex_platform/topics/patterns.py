"""Patterns of topic names: what they match, and the access rules that mean the same.

`*` stands for one segment; at the end of a pattern it stands for one or more. Kafka knows neither:
its rules name one resource or a prefix of names. A prefix ends with a dot here, since `prod.a`
would cover `prod.ab` too, and a `*` in front of it becomes one rule for each word that it means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

from onex_platform.base.errors import ConfigurationError
from onex_platform.topics.grammar import ENVIRONMENTS, STREAM_CLASSES

ANY = "*"


@dataclass(frozen=True, order=True)
class NamePattern:
    """Names by their segments, such as `prod.*.onex.evt.*.*`."""

    text: str

    def __post_init__(self) -> None:
        if not all(part == ANY or (part and ANY not in part) for part in self.parts):
            raise ConfigurationError(
                f"Pattern {self.text!r} has an empty segment or a * beside other characters.",
                hint="A * is a whole segment, as in prod.*.onex.evt.*.*",
            )

    @property
    def parts(self) -> list[str]:
        return self.text.split(".")

    def matches(self, name: str) -> bool:
        words, parts = name.split("."), self.parts
        if parts[-1] == ANY and len(words) > len(parts):
            words = words[: len(parts)]
        return len(words) == len(parts) and all(
            part in (ANY, word) for part, word in zip(parts, words, strict=True)
        )


@dataclass(frozen=True, order=True)
class Resource:
    """What an access rule is about, in Kafka's terms."""

    pattern: Literal["literal", "prefixed"]
    name: str

    def covers(self, name: str) -> bool:
        return name == self.name if self.pattern == "literal" else name.startswith(self.name)


def resources(
    pattern: NamePattern, *, tenants: Sequence[str], contexts: Sequence[str], home: str
) -> tuple[Resource, ...]:
    """The access rules' view of a pattern of broker's names, each exactly as wide as the pattern.

    A `*` that has something behind it is spelled out: one resource per tenant, context, class.
    """
    parts = pattern.parts
    stem = len(parts)
    while stem and parts[stem - 1] == ANY:
        stem -= 1
    if not stem:
        raise _untranslatable(pattern, "it would cover every topic of the cluster")
    words = _words_at(parts, tenants, contexts, home)
    choices: list[Sequence[str]] = []
    for place, part in enumerate(parts[:stem]):
        if part != ANY:
            choices.append((part,))
        elif place in words:
            choices.append(words[place])
        else:
            raise _untranslatable(pattern, f"nobody can list what its segment {place + 1} means")
    names = sorted({".".join(filter(None, choice)) for choice in product(*choices)})
    if stem == len(parts):
        return tuple(Resource("literal", name) for name in names)
    return tuple(Resource("prefixed", f"{name}.") for name in names)


def _words_at(
    parts: Sequence[str], tenants: Sequence[str], contexts: Sequence[str], home: str
) -> Mapping[int, Sequence[str]]:
    """What a `*` in each place may mean, by the dialect that the pattern is in."""
    if parts[1:2] == ["onex"] and parts[0] not in ENVIRONMENTS:
        return {0: ["" if tenant == home else tenant for tenant in tenants]}
    if parts[0] in (ANY, *ENVIRONMENTS):
        return {0: ENVIRONMENTS, 1: tenants, 2: contexts, 3: STREAM_CLASSES}
    return {}


def _untranslatable(pattern: NamePattern, reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"Pattern {pattern.text!r} can't become an access rule: {reason}.",
        hint="Spell the segment out; docs/topics/cluster.md has examples.",
    )
