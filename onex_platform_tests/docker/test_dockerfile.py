"""The Dockerfile: linted, pinned, unprivileged, and made of files that exist."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

from onex_platform.engines.spark import worker
from onex_platform_tests.support.docker_files import CHECKOUT, DOCKER, Stage

Stages = dict[str, Stage]


def test_hadolint_has_nothing_to_say() -> None:
    lint = subprocess.run(
        [f"{sys.prefix}/bin/hadolint", str(DOCKER / "Dockerfile")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert lint.returncode == 0, lint.stdout
    assert lint.stdout == ""


def test_bases_are_stages_or_pinned_images(stages: Stages) -> None:
    for stage in stages.values():
        assert stage.base in stages or re.search(r":\d+\.\d+\.\d+", stage.base), stage.base


def test_every_built_target_is_a_stage_that_drops_root(
    stages: Stages, services: dict[str, dict[str, Any]]
) -> None:
    targets = {service["build"]["target"] for service in services.values() if "build" in service}
    for target in targets:
        assert _user(stages, target) not in ("root", "0"), target


def test_copied_files_exist_and_reach_the_builder(stages: Stages) -> None:
    admitted = {
        line.removeprefix("!").rstrip("/")
        for line in (CHECKOUT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    for stage in stages.values():
        for copy in stage.values("COPY"):
            origin = re.match(r"--from=(\S+) ", copy)
            if origin:
                assert origin[1] in stages, copy
                continue
            *sources, _target = copy.split()
            for source in sources:
                assert (CHECKOUT / source).exists(), copy
                assert source.split("/")[0] in admitted, f"{source} is in .dockerignore"


def test_dagster_finds_its_files_where_compose_says(
    stages: Stages, services: dict[str, dict[str, Any]]
) -> None:
    platform = stages["platform"]
    (home,) = re.findall(r"DAGSTER_HOME=(\S+)", " ".join(platform.values("ENV")))
    assert f"dagster.yaml docker/workspace.yaml {home}/" in platform.values("COPY")
    for name in ("dagster-daemon", "dagster-webserver"):
        assert f"{home}/workspace.yaml" in services[name]["command"]
    for name in ("dagster-code", "dagster-webserver"):
        assert f"dagster-storage:{home}/storage" in services[name]["volumes"]


def test_spark_is_configured_for_what_is_in_its_image(
    stages: Stages, services: dict[str, dict[str, Any]]
) -> None:
    spark = stages["spark"]
    defaults = dict(
        line.split(maxsplit=1)
        for line in (DOCKER / "spark-defaults.conf").read_text().splitlines()
        if line.startswith("spark.")
    )
    jars = defaults["spark.jars"].removesuffix("/*.jar")
    assert f"--from=jars {jars} {jars}" in spark.values("COPY")
    (conf,) = re.findall(r"SPARK_CONF_DIR=(\S+)", " ".join(spark.values("ENV")))
    assert f"docker/spark-defaults.conf {conf}/" in spark.values("COPY")
    remote = services["dagster-code"]["environment"]["ONEX_SPARK_REMOTE"]
    assert remote.endswith(f":{defaults['spark.connect.grpc.binding.port']}")
    assert defaults["spark.python.daemon.module"] == worker.MODULE


def _user(stages: Stages, name: str) -> str:
    """Who a stage runs as: its last USER, or that of the stage it is built on."""
    stage = stages[name]
    if users := stage.values("USER"):
        return users[-1]
    return _user(stages, stage.base) if stage.base in stages else "root"
