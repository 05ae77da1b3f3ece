"""Fetching jars with a resolver that exists: Maven if it is on the machine, else pyspark's Ivy.

Both read the user's own registry settings, verify each file against the checksum that the registry
publishes, and work in a folder of their own: a half-filled `~/.m2` or `~/.ivy2` can't hurt, and
nothing of a failed attempt is used by the next.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as Xml

from onex_platform.base.errors import InfraConnectionError, InfraError, OnexError, PrerequisiteError
from onex_platform.base.settings import Settings
from onex_platform.stack import processes
from onex_platform.stack.java import find_java, java_environment, pyspark_folder
from onex_platform.stack.progress import Report

_COPY_DEPENDENCIES = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_PROGRESS_INTERVAL_SECONDS = 3.0
_IVY_MAVEN = "http://ant.apache.org/ivy/maven"  # the name space of Maven's words in Ivy's files


@dataclass(frozen=True)
class Artifact:
    """The coordinates of one file, alone or with everything it needs at run time."""

    group: str
    name: str
    version: str
    with_dependencies: bool = False
    type: str = "jar"
    classifier: str | None = None

    @property
    def file_name(self) -> str:
        classified = "" if self.classifier is None else f"-{self.classifier}"
        return f"{self.name}-{self.version}{classified}.{self.type}"


@dataclass(frozen=True)
class _Resolver:
    title: str
    command: Callable[[Sequence[Artifact], Path, Path, Settings], list[str]]
    fetched: re.Pattern[str]  # one match per file in the resolver's output


def resolve(
    artifacts: Sequence[Artifact], work: Path, *, log: Path, settings: Settings, report: Report
) -> list[Path]:
    """Fetch the artifacts into a new folder below `work` and give its files."""
    resolver = _choose(settings)
    target = work / "jars"
    target.mkdir()
    log.unlink(missing_ok=True)
    exit_code = processes.run(
        resolver.command(artifacts, work, target, settings),
        cwd=work,
        log=log,
        environment=java_environment(settings),
        timeout_seconds=settings.stack.resolve_timeout_seconds,
        tick=_progress(resolver, log, report),
    )
    if exit_code != 0:
        raise _explain(resolver, exit_code, log, settings)
    files = sorted(target.iterdir())
    missing = {artifact.file_name for artifact in artifacts} - {file.name for file in files}
    if missing:
        raise InfraError(
            f"{resolver.title} did not deliver {', '.join(sorted(missing))}.",
            hint=f"Its output is in {log}.",
        )
    return files


def _choose(settings: Settings) -> _Resolver:
    wanted = settings.stack.resolver
    if wanted == "ivy" or (wanted == "auto" and shutil.which("mvn") is None):
        return _IVY
    if shutil.which("mvn") is None:
        raise PrerequisiteError(
            "ONEX_STACK_RESOLVER is 'maven', but no `mvn` is on PATH.",
            hint="Install Maven, or unset the variable to use the Ivy inside pyspark.",
        )
    return _MAVEN


def _maven_command(
    artifacts: Sequence[Artifact], work: Path, target: Path, settings: Settings
) -> list[str]:
    find_java(settings)
    project = Xml.Element("project")
    own = {"modelVersion": "4.0.0", "groupId": "onex", "artifactId": "jars", "version": "1"}
    _add_children(project, own | {"packaging": "pom"})
    dependencies = Xml.SubElement(project, "dependencies")
    for artifact in artifacts:
        dependency = Xml.SubElement(dependencies, "dependency")
        _add_children(
            dependency,
            {
                "groupId": artifact.group,
                "artifactId": artifact.name,
                "version": artifact.version,
                "type": artifact.type,
                **({} if artifact.classifier is None else {"classifier": artifact.classifier}),
            },
        )
        if not artifact.with_dependencies:
            exclusions = Xml.SubElement(dependency, "exclusions")
            everything = Xml.SubElement(exclusions, "exclusion")
            _add_children(everything, {"groupId": "*", "artifactId": "*"})
    pom = work / "pom.xml"
    Xml.ElementTree(project).write(pom)
    own_settings = settings.stack.maven_settings
    return [
        "mvn",
        "--batch-mode",
        "--strict-checksums",
        *([] if own_settings is None else ["--settings", str(own_settings)]),
        f"--file={pom}",
        f"-Dmaven.repo.local={work / 'repository'}",
        f"-DoutputDirectory={target}",
        "-DincludeScope=runtime",
        _COPY_DEPENDENCIES,
    ]


def _ivy_command(
    artifacts: Sequence[Artifact], work: Path, target: Path, settings: Settings
) -> list[str]:
    module = Xml.Element("ivy-module", version="2.0")
    Xml.SubElement(module, "info", organisation="onex", module="jars")
    dependencies = Xml.SubElement(module, "dependencies")
    for artifact in artifacts:
        dependency = Xml.SubElement(
            dependencies,
            "dependency",
            org=artifact.group,
            name=artifact.name,
            rev=artifact.version,
            conf="default->default",
            transitive=str(artifact.with_dependencies).lower(),
        )
        if artifact.classifier is not None:
            Xml.SubElement(
                dependency,
                "artifact",
                {f"{{{_IVY_MAVEN}}}classifier": artifact.classifier},
                name=artifact.name,
                type=artifact.type,
                ext=artifact.type,
            )
    description = work / "ivy.xml"
    Xml.ElementTree(module).write(description)
    own_settings = settings.stack.ivy_settings or Path("~/.ivy2/ivysettings.xml").expanduser()
    if own_settings.exists() or settings.stack.ivy_settings is not None:
        home, registry = [], ["-settings", str(own_settings)]
    else:
        # Ivy's own settings look into the user's ~/.ivy2 first.
        home, registry = [f"-Divy.default.ivy.user.dir={work / 'ivy-home'}"], []
    return [
        find_java(settings),
        *home,
        "-jar",
        str(_ivy_jar()),
        *registry,
        "-cache",
        str(work / "ivy-cache"),
        "-ivy",
        str(description),
        "-retrieve",
        f"{target}/[artifact]-[revision](-[classifier]).[ext]",
        # Some jars are published with the packaging "bundle"; they would be left out silently.
        "-types",
        "jar",
        "bundle",
        *sorted({artifact.type for artifact in artifacts} - {"jar"}),
    ]


def _ivy_jar() -> Path:
    for jar in (pyspark_folder() / "jars").glob("ivy-*.jar"):
        return jar
    raise PrerequisiteError(
        "Neither `mvn` nor the Ivy of pyspark is on this machine to fetch jars with.",
        hint="Install Maven.",
    )


def _add_children(parent: Xml.Element, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        Xml.SubElement(parent, name).text = text


_MAVEN = _Resolver("Maven", _maven_command, re.compile(r"^\[INFO\] Downloaded from", re.M))
_IVY = _Resolver("Ivy", _ivy_command, re.compile(r"^\tfound |\[SUCCESSFUL \]", re.M))


def _progress(resolver: _Resolver, log: Path, report: Report) -> Callable[[], None]:
    last_report = time.monotonic()

    def tick() -> None:
        nonlocal last_report
        if time.monotonic() - last_report < _PROGRESS_INTERVAL_SECONDS:
            return
        last_report = time.monotonic()
        count = len(resolver.fetched.findall(log.read_text(errors="replace")))
        report(f"{resolver.title} has found or fetched {count} files")

    return tick


def _explain(
    resolver: _Resolver, exit_code: int | None, log: Path, settings: Settings
) -> OnexError:
    """The one sentence for a resolver's many lines."""
    output = log.read_text(errors="replace")
    look = f"Its output is in {log}."
    if "No space left on device" in output:
        return PrerequisiteError(
            f"The disk of {settings.stack.cache} became full while {resolver.title} fetched jars.",
            hint="Free some space, or point ONEX_STACK_CACHE to another disk.",
        )
    if re.search(r"checksum validation failed|invalid (sha1|md5)", output, re.I):
        return InfraConnectionError(
            f"{resolver.title} received a file that does not match its published checksum.",
            hint=f"Run the command again; if it stays so, the registry is at fault. {look}",
        )
    if exit_code is None or _UNREACHABLE.search(output):
        return InfraConnectionError(
            f"{resolver.title} could not reach the Maven registry to fetch jars.",
            hint="Check the connection, and the proxy or mirror in the resolver's own settings "
            f"(ONEX_STACK_MAVEN_SETTINGS, ONEX_STACK_IVY_SETTINGS); then run it again. {look}",
        )
    return InfraError(f"{resolver.title} could not fetch the jars.", hint=look)


_UNREACHABLE = re.compile(
    r"connection refused|unknown ?host|timed out|network is unreachable|server access error"
    r"|connection reset|could not transfer|no route to host|name resolution",
    re.I,
)
