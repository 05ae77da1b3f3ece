"""The jars of the embedded servers and of the Spark jobs: resolved once, verified at each use.

There are two sets, because the broker and Spark need different releases of the same client. Each
is a list of coordinates, and its folder in the cache is named after them, so that changing one
resolves anew. The folder appears in one step, complete, with a manifest of sizes and digests. The
schema registry is a third one, and comes as an archive that is unpacked there.
"""

from __future__ import annotations

import hashlib
import shutil
import tarfile
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from pydantic import BaseModel, ValidationError

from onex_platform.base.errors import OnexError
from onex_platform.base.settings import Settings
from onex_platform.stack.atomic_files import require_space, take_lock, write_atomically
from onex_platform.stack.progress import Report, silent
from onex_platform.stack.resolvers import Artifact, resolve

_SCALA = "2.13"


@dataclass(frozen=True)
class JarSet:
    """Jars that share one class path."""

    name: str
    artifacts: tuple[Artifact, ...]

    @property
    def folder_name(self) -> str:
        digest = hashlib.sha256("\n".join(map(str, self.artifacts)).encode()).hexdigest()
        return f"{self.name}-{digest[:12]}"


BROKER = JarSet(
    "broker",
    (
        Artifact("org.apache.kafka", f"kafka_{_SCALA}", "4.3.1", with_dependencies=True),
        # The broker logs through SLF4J 1.7 and says nothing without a binding.
        Artifact("org.slf4j", "slf4j-simple", "1.7.36"),
    ),
)

# The newest release that runs on Java 17 and whose parents are in the Maven registry as well.
SCHEMA_REGISTRY = JarSet(
    "schemas",
    (
        Artifact(
            "io.apicurio",
            "apicurio-registry-app",
            "2.6.13.Final",
            type="tar.gz",
            classifier="all",
        ),
    ),
)


def spark_connectors() -> JarSet:
    """Kafka's source and PostgreSQL's driver; the connector must carry Spark's own version."""
    spark = version("pyspark")
    return JarSet(
        "spark",
        (
            Artifact("org.apache.spark", f"spark-sql-kafka-0-10_{_SCALA}", spark),
            Artifact("org.apache.spark", f"spark-token-provider-kafka-0-10_{_SCALA}", spark),
            Artifact("org.apache.kafka", "kafka-clients", "3.9.0"),
            Artifact("org.apache.commons", "commons-pool2", "2.12.0"),
            Artifact("org.postgresql", "postgresql", "42.7.14"),
        ),
    )


class _Entry(BaseModel):
    size: int
    sha256: str


class _Manifest(BaseModel):
    files: dict[str, _Entry]


def spark_jars(settings: Settings, report: Report = silent) -> list[Path]:
    """The files for `spark.jars`, resolved into the cache if they are not there yet."""
    return jar_files(spark_connectors(), settings, report)


def jar_files(jars: JarSet, settings: Settings, report: Report) -> list[Path]:
    """The files of a set, sound ones; a missing or damaged set is resolved (anew) first."""
    cache = settings.stack.cache.expanduser().resolve()
    folder = cache / jars.folder_name
    if _damage(folder) is not None:
        with take_lock(
            cache / f"{jars.name}.lock",
            patience_seconds=settings.stack.resolve_timeout_seconds,
            doing=f"resolving the {jars.name} jars",
        ):
            # Somebody else may have resolved them while we waited for the lock.
            if (damage := _damage(folder)) is not None:
                report(f"{damage}; resolving the {jars.name} jars (once)")
                try:
                    _resolve_into(folder, jars, settings, report)
                except OnexError as error:
                    sentence = f"{damage}: {error.message}"
                    raise type(error)(sentence, hint=error.hint) from error
    return sorted(folder.rglob("*.jar"))


def _resolve_into(folder: Path, jars: JarSet, settings: Settings, report: Report) -> None:
    require_space(folder.parent, settings.stack)
    prefix = f".{jars.name}-"
    for left_over in folder.parent.glob(f"{prefix}*"):
        shutil.rmtree(left_over, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=prefix) as work:
        files = resolve(
            jars.artifacts,
            Path(work),
            log=folder.parent / f"{jars.name}.log",
            settings=settings,
            report=report,
        )
        fresh = files[0].parent
        for archive in (file for file in files if file.name.endswith(".tar.gz")):
            with tarfile.open(archive) as content:
                content.extractall(fresh, filter="data")
            archive.unlink()
        manifest = _Manifest(
            files={
                str(file.relative_to(fresh)): _measure(file)
                for file in sorted(fresh.rglob("*"))
                if file.is_file()
            }
        )
        write_atomically(fresh / "manifest.json", manifest.model_dump_json(indent=2))
        if folder.exists():
            folder.replace(Path(work) / "damaged")
        fresh.replace(folder)


def _measure(file: Path) -> _Entry:
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    return _Entry(size=file.stat().st_size, sha256=digest)


def _damage(folder: Path) -> str | None:
    """What is wrong with a set's folder, naming the file; none if every jar is as resolved."""
    try:
        manifest = _Manifest.model_validate_json((folder / "manifest.json").read_bytes())
    except FileNotFoundError:
        return f"{folder.name} is not in the cache yet"
    except ValidationError:
        return f"The manifest of {folder.name} in the cache is damaged"
    for name, entry in manifest.files.items():
        file = folder / name
        if not file.is_file():
            return f"{name} is missing in the cache"
        if file.stat().st_size != entry.size or _measure(file) != entry:
            return f"{name} in the cache is damaged"
    present = {str(file.relative_to(folder)) for file in folder.rglob("*.jar")}
    if surplus := present - manifest.files.keys():
        return f"{min(surplus)} in the cache is not one of ours"
    return None
