"""Spark's classes in an archive that its JVM maps at its start, which then takes half the time.

    python -m onex_platform_tests.support.class_archives

`make test` makes it while it checks the code. It stands in the virtual environment, beside the jars
that it was made of. Tests that find none run as well; a JVM ignores one of another Java or of other
jars.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path

from onex_platform.base.environment import child_environment
from onex_platform.stack.java import pyspark_folder

# Java programs of the tests live for minutes: what the thorough compiler, the parallel collector
# and the verification of classes cost at their start, they never give back.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_TRUSTING = "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
_FOLDER = Path(sys.prefix) / "class-archives"
_TYPICAL_JOBS = """
from onex_platform.base.settings import SparkSettings, load_settings
from onex_platform.engines.spark.session import open_session
settings = load_settings().model_copy(update={"spark": SparkSettings(master="local[2]")})
with open_session(settings, []) as spark:
    numbers = spark.range(0, 100, 1, 2).mapInArrow(lambda batches: batches, "id long")
    assert numbers.count() == 100
    assert len(numbers.groupBy("id").count().collect()) == 100
"""


def java_variables() -> dict[str, str]:
    """What Java programs of the tests find in their environment; Spark's also finds its archive."""
    variables = {"JDK_JAVA_OPTIONS": f"{_SHORT_LIVED} {_TRUSTING}"}
    if (archive := _archive()).exists():
        variables["SPARK_SUBMIT_OPTS"] = f"-XX:SharedArchiveFile={archive} -Xlog:disable"
    return variables


def main() -> None:
    """Run a few jobs, and let the JVM write down the classes that it has loaded at its end."""
    archive = _archive()
    if archive.exists():
        return
    _FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_FOLDER) as folder:
        draft, program = Path(folder) / archive.name, Path(folder) / "typical_jobs.py"
        program.write_text(_TYPICAL_JOBS, encoding="utf-8")
        variables = {
            "JDK_JAVA_OPTIONS": _SHORT_LIVED,
            "SPARK_SUBMIT_OPTS": f"-XX:ArchiveClassesAtExit={draft} -Xlog:disable",
            "PYSPARK_PYTHON": sys.executable,
        }
        # Its JVM is the parent of the program here, so the archive is whole when it ends.
        jobs = subprocess.run(
            [str(pyspark_folder() / "bin" / "spark-submit"), str(program)],
            env=child_environment(variables),
            capture_output=True,
            text=True,
            check=False,
        )
        if jobs.returncode != 0:
            sys.exit(f"{jobs.stderr}\nerror: Spark could not run the jobs above.")
        for outdated in _FOLDER.glob("*.jsa"):
            outdated.unlink()
        draft.rename(archive)


def _archive() -> Path:
    """Its name changes with Java and with Spark's jars."""
    java = Path(shutil.which("java") or sys.executable).resolve()
    made_of = (java, pyspark_folder() / "jars")
    seen = "\n".join(f"{part} {part.stat().st_mtime_ns}" for part in made_of)
    return _FOLDER / f"spark-{sha256(seen.encode()).hexdigest()[:12]}.jsa"


if __name__ == "__main__":
    main()
