"""Jars are fetched once, whole and verified; what is wrong with them is said in one sentence."""

from __future__ import annotations

import json
import multiprocessing
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from onex_platform.base.errors import InfraConnectionError, InfraError, OnexError, PrerequisiteError
from onex_platform.base.settings import Settings
from onex_platform.stack.jars import BROKER, JarSet, jar_files, spark_connectors
from onex_platform.stack.ports import LOOPBACK, free_port
from onex_platform.stack.resolvers import Artifact
from onex_platform_tests.support.own_stacks import FolderRegistry, NewStack, write_ivy_settings

RESOLVERS = ["ivy", *(["maven"] if shutil.which("mvn") else [])]
SMALL = JarSet("small", (Artifact("org.example", "thing", "1.0"),))


@pytest.fixture
def settings(new_stack: NewStack, registry: FolderRegistry, tmp_path: Path) -> Settings:
    """Ivy on a registry that publishes `SMALL`, with an empty cache."""
    registry.publish("org.example", "thing", "1.0", b"a jar")
    return new_stack(resolver="ivy", ivy_settings=registry.ivy_settings, cache=tmp_path / "cache")


def fetch(settings: Settings) -> tuple[list[Path], list[str]]:
    sentences: list[str] = []
    return jar_files(SMALL, settings, sentences.append), sentences


def test_a_set_is_fetched_once(settings: Settings) -> None:
    files, first = fetch(settings)
    assert [file.read_bytes() for file in files] == [b"a jar"]
    assert "resolving the small jars" in first[0]
    assert fetch(settings) == (files, [])


def test_changed_coordinates_are_another_set() -> None:
    newer = JarSet("small", (Artifact("org.example", "thing", "1.1"),))
    assert newer.folder_name != SMALL.folder_name


def damage_content(jar: Path) -> None:
    jar.write_bytes(b"x jar")


def damage_size(jar: Path) -> None:
    jar.write_bytes(b"a ja")


def remove_jar(jar: Path) -> None:
    jar.unlink()


def damage_manifest(jar: Path) -> None:
    jar.with_name("manifest.json").write_text("{")


def add_stranger(jar: Path) -> None:
    jar.with_name("stranger.jar").write_bytes(b"")


@pytest.mark.parametrize(
    ("harm", "sentence"),
    [
        (damage_content, "thing-1.0.jar in the cache is damaged"),
        (damage_size, "thing-1.0.jar in the cache is damaged"),
        (remove_jar, "thing-1.0.jar is missing in the cache"),
        (damage_manifest, "The manifest of small-"),
        (add_stranger, "stranger.jar in the cache is not one of ours"),
    ],
)
def test_a_damaged_cache_is_named_and_fetched_anew(
    settings: Settings, harm: Callable[[Path], None], sentence: str
) -> None:
    [jar], _ = fetch(settings)
    harm(jar)
    files, sentences = fetch(settings)
    assert sentence in sentences[0]
    assert [file.read_bytes() for file in files] == [b"a jar"]
    assert [file.name for file in settings.stack.cache.iterdir() if file.name[0] == "."] == []


def test_a_damaged_jar_that_can_not_be_replaced_is_an_error_not_a_class_path(
    settings: Settings, registry: FolderRegistry
) -> None:
    [jar], _ = fetch(settings)
    damage_content(jar)
    shutil.rmtree(registry.folder / "org")
    with pytest.raises(InfraError, match=r"thing-1\.0\.jar in the cache is damaged"):
        fetch(settings)


def test_a_file_that_differs_from_its_published_checksum_is_refused(
    settings: Settings, registry: FolderRegistry
) -> None:
    next(registry.folder.rglob("*.jar")).write_bytes(b"tampered")
    with pytest.raises(InfraConnectionError, match="does not match its published checksum"):
        fetch(settings)
    assert list(settings.stack.cache.rglob("*.jar")) == []


def test_what_a_killed_attempt_left_is_cleared(settings: Settings) -> None:
    left_over = settings.stack.cache / ".small-killed"
    left_over.mkdir(parents=True)
    fetch(settings)
    assert not left_over.exists()


def test_processes_that_need_the_same_jars_at_once_fetch_them_once(settings: Settings) -> None:
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        outcomes = pool.map(fetch, [settings] * 3)
    assert len({tuple(files) for files, _ in outcomes}) == 1
    assert sum(len(sentences) for _, sentences in outcomes) == 1


@pytest.mark.parametrize("resolver", RESOLVERS)
def test_an_unreachable_registry_is_one_sentence(
    new_stack: NewStack, tmp_path: Path, resolver: str
) -> None:
    nobody = f"http://{LOOPBACK}:{free_port()}/"
    maven = tmp_path / "settings.xml"
    maven.write_text(
        "<settings><mirrors><mirror><id>nobody</id><mirrorOf>*</mirrorOf>"
        f"<url>{nobody}</url></mirror></mirrors></settings>"
    )
    settings = new_stack(
        resolver=resolver,
        maven_settings=maven,
        ivy_settings=write_ivy_settings(tmp_path / "ivysettings.xml", nobody),
        cache=tmp_path / "cache",
    )
    with pytest.raises(InfraConnectionError, match="could not reach the Maven registry") as caught:
        fetch(settings)
    assert "Check the connection" in str(caught.value)
    assert list(settings.stack.cache.rglob("*.jar")) == []


def test_a_resolver_that_hangs_is_stopped(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient = install_mvn(settings, tmp_path, monkeypatch, "exec sleep 60", timeout=0.5)
    with pytest.raises(InfraConnectionError, match="could not reach the Maven registry"):
        fetch(impatient)


# A resolver's own faults can't be provoked at will: these stand in for `mvn`.
@pytest.mark.parametrize(
    ("script", "kind", "sentence"),
    [
        ("echo No space left on device; exit 1", PrerequisiteError, "became full while Maven"),
        ("echo something else; exit 1", InfraError, "Maven could not fetch the jars"),
        ("exit 0", InfraError, r"Maven did not deliver thing-1\.0\.jar"),
    ],
)
def test_a_resolver_that_fails_is_explained(
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    kind: type[OnexError],
    sentence: str,
) -> None:
    with pytest.raises(kind, match=sentence):
        fetch(install_mvn(settings, tmp_path, monkeypatch, script))


def install_mvn(
    settings: Settings,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    timeout: float = 60,
) -> Settings:
    command = folder / "bin" / "mvn"
    command.parent.mkdir()
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(command.parent), prepend=":")
    changes = {"resolver": "maven", "resolve_timeout_seconds": timeout}
    return settings.model_copy(update={"stack": settings.stack.model_copy(update=changes)})


def test_maven_is_asked_for_but_missing(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanting = install_mvn(settings, tmp_path, monkeypatch, "")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PrerequisiteError, match="no `mvn` is on PATH"):
        fetch(wanting)


def test_too_little_space_is_said_before_anything_is_fetched(settings: Settings) -> None:
    greedy = settings.stack.model_copy(update={"min_free_mb": 10**9})
    with pytest.raises(PrerequisiteError, match="MB free; 1000000000 MB are needed"):
        fetch(settings.model_copy(update={"stack": greedy}))


def test_the_connector_carries_the_version_of_spark() -> None:
    import pyspark

    versions = {artifact.name: artifact.version for artifact in spark_connectors().artifacts}
    assert versions["spark-sql-kafka-0-10_2.13"] == pyspark.__version__
    assert versions["spark-token-provider-kafka-0-10_2.13"] == pyspark.__version__


@pytest.mark.servers
def test_every_resolver_delivers_the_same_files(new_stack: NewStack, tmp_path: Path) -> None:
    manifests = []
    for resolver in RESOLVERS:
        settings = new_stack(resolver=resolver, cache=tmp_path / resolver)
        [first, *_] = jar_files(spark_connectors(), settings, lambda _: None)
        manifests.append(json.loads(first.with_name("manifest.json").read_text()))
    assert len(manifests[0]["files"]) == len(spark_connectors().artifacts)
    assert all(manifest == manifests[0] for manifest in manifests)


def test_the_broker_and_spark_have_separate_sets() -> None:
    assert BROKER.folder_name != spark_connectors().folder_name
