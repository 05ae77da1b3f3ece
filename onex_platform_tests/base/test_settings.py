"""Settings: where they come from, what is refused and how it is said, what is never shown."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from onex_platform.base.environment import describe_variables, effective_values
from onex_platform.base.errors import ConfigurationError
from onex_platform.base.settings import KafkaSettings, Settings, load_settings
from onex_platform.cli.settings import command


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variable of ours and no .env file, whoever runs the tests."""
    for variable, _ in describe_variables(Settings):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)


def _refusal(monkeypatch: pytest.MonkeyPatch, **variables: str) -> ConfigurationError:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError) as refused:
        load_settings()
    return refused.value


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments)


def test_defaults_are_those_of_the_specifications() -> None:
    settings = load_settings()
    assert settings.environment == "dev"
    assert (settings.breaker.failure_threshold, settings.breaker.reset_seconds) == (5, 60)
    registration = settings.registration
    assert registration.ack_seconds == 30
    assert registration.first_liveness_seconds == 60
    assert registration.heartbeat_liveness_seconds == 90


def test_the_environment_wins_over_the_env_file_and_the_file_over_the_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".env").write_text("ONEX_TENANT=from-file\nONEX_KAFKA_CLIENT_ID=from-file\n")
    monkeypatch.setenv("ONEX_TENANT", "from-environment")
    settings = load_settings()
    assert settings.tenant == "from-environment"
    assert settings.kafka.client_id == "from-file"
    sources = {row.variable: row.source for row in effective_values(settings)}
    assert sources["ONEX_TENANT"] == "environment"
    assert sources["ONEX_KAFKA_CLIENT_ID"] == ".env"
    assert sources["ONEX_LOG_LEVEL"] == "default"


def test_a_variable_set_to_nothing_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEX_KAFKA_BOOTSTRAP_SERVERS", "")
    monkeypatch.setenv("ONEX_LOG_LEVEL", "")
    settings = load_settings()
    assert settings.kafka.bootstrap_servers is None
    assert {row.source for row in effective_values(settings)} == {"default"}


def test_foreign_variables_in_the_env_file_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("SOMEBODY_ELSE=1\nONEX_TENANT=mine\n")
    assert load_settings().tenant == "mine"


@pytest.mark.parametrize(
    ("variable", "value", "allowed"),
    [
        ("ONEX_ENVIRONMENT", "production", "'dev', 'stage', 'prod', 'sand' or 'test'"),
        ("ONEX_TENANT", "Not A Slug", "pattern"),
        ("ONEX_POSTGRES_POOL_SIZE", "0", "greater than or equal to 1"),
        ("ONEX_POSTGRES_POOL_SIZE", "many", "valid integer"),
        ("ONEX_KAFKA_BOOTSTRAP_SERVERS", "host:port", "expected host:port,host:port"),
        ("ONEX_KAFKA_BOOTSTRAP_SERVERS", "kafka://host:9092", "expected host:port,host:port"),
        ("ONEX_KAFKA_BOOTSTRAP_SERVERS", "a:1,,b:2", "expected host:port,host:port"),
        ("ONEX_KAFKA_SECURITY_PROTOCOL", "TLS", "'PLAINTEXT', 'SSL'"),
        ("ONEX_SPARK_REMOTE", "spark://host", "^sc://"),
        ("ONEX_BREAKER_RESET_SECONDS", "-1", "greater than 0"),
        ("ONEX_REGISTRATION_LEDGER_DAYS", "0", "greater than or equal to 1"),
    ],
)
def test_a_wrong_value_is_named_with_its_variable_and_what_is_allowed(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, allowed: str
) -> None:
    refusal = _refusal(monkeypatch, **{variable: value})
    assert f"{variable}={value!r}" in refusal.message
    assert allowed in refusal.message
    assert refusal.hint == "`onex settings --help` lists every variable."


def test_all_wrong_values_are_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    message = _refusal(monkeypatch, ONEX_LOG_LEVEL="LOUD", ONEX_STACK_KAFKA_HEAP="big").message
    assert "ONEX_LOG_LEVEL='LOUD'" in message
    assert "ONEX_STACK_KAFKA_HEAP='big'" in message


def test_a_wrong_database_address_names_its_variable_without_the_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    message = _refusal(monkeypatch, ONEX_POSTGRES_URL="mysql://ada:s3/cr@et@db/onex").message
    assert "ONEX_POSTGRES_URL='mysql://ada:***@db/onex'" in message
    assert "not a PostgreSQL address" in message


@pytest.mark.parametrize("address", ["ada:s3cret@db", "s3cret", "mysql://ada:s3cret"])
def test_what_is_not_even_an_address_is_not_shown_at_all(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    message = _refusal(monkeypatch, ONEX_POSTGRES_DAGSTER_URL=address).message
    assert "ONEX_POSTGRES_DAGSTER_URL='***'" in message
    assert "s3cret" not in message


@pytest.mark.parametrize(
    ("variables", "needed"),
    [
        ({"ONEX_KAFKA_SECURITY_PROTOCOL": "SASL_SSL"}, "ONEX_KAFKA_SASL_MECHANISM"),
        ({"ONEX_KAFKA_SASL_MECHANISM": "PLAIN"}, "ONEX_KAFKA_SASL_USERNAME"),
        (
            {"ONEX_KAFKA_SASL_MECHANISM": "PLAIN", "ONEX_KAFKA_SASL_USERNAME": "ada"},
            "ONEX_KAFKA_SASL_PASSWORD",
        ),
        ({"ONEX_SPARK_REMOTE": "sc://a", "ONEX_SPARK_MASTER": "local"}, "ONEX_SPARK_MASTER"),
        (
            {"ONEX_SNAPSHOTS_TRANSACTION_SECONDS": "60"},
            "ONEX_POSTGRES_STATEMENT_TIMEOUT_SECONDS=60 must exceed",
        ),
        (
            {"ONEX_DEADLINES_GAP_SECONDS": "31"},
            "at most half of ONEX_REGISTRATION_FIRST_LIVENESS_SECONDS=60",
        ),
        (
            {"ONEX_REGISTRATION_HEARTBEAT_LIVENESS_SECONDS": "59"},
            "ONEX_DEADLINES_GAP_SECONDS=30 must be at most half",
        ),
        ({"ONEX_DEADLINES_GAP_SECONDS": "5"}, "must exceed ONEX_PIPELINE_CLOCK_SECONDS=5"),
        (
            {"ONEX_REGISTRATION_HEARTBEAT_SECONDS": "90"},
            "ONEX_REGISTRATION_HEARTBEAT_LIVENESS_SECONDS=90 must exceed",
        ),
        (
            {"ONEX_PIPELINE_LINGER_SECONDS": "30"},
            "must exceed ONEX_REGISTRATION_HEARTBEAT_SECONDS=30",
        ),
        (
            {"ONEX_PIPELINE_RUN_SECONDS": "60"},
            "must exceed ONEX_PIPELINE_HANDOVER_SECONDS=60",
        ),
        (
            {"ONEX_PIPELINE_LINGER_SECONDS": "600"},
            "ONEX_PIPELINE_RUN_SECONDS=600 must exceed",
        ),
        (
            {"ONEX_PIPELINE_LEASE_SECONDS": "30"},
            "ONEX_DEADLINES_GAP_SECONDS=30 must exceed",
        ),
    ],
)
def test_settings_that_only_make_sense_together_name_each_other(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], needed: str
) -> None:
    message = _refusal(monkeypatch, **variables).message
    assert next(iter(variables)) in message
    assert needed in message


def test_a_misspelled_variable_is_refused_with_the_nearest_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    refusal = _refusal(monkeypatch, ONEX_POSTGRES_ULR="postgresql://db")
    assert refusal.message == "ONEX_POSTGRES_ULR is not a setting."
    assert refusal.hint == "Did you mean ONEX_POSTGRES_URL?"
    monkeypatch.delenv("ONEX_POSTGRES_ULR")
    (tmp_path / ".env").write_text("ONEX_SOMETHING_ELSE_ENTIRELY=1\n")
    assert "ONEX_SOMETHING_ELSE_ENTIRELY" in _refusal(monkeypatch).message


def test_the_help_lists_every_variable_even_if_one_is_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ONEX_LOG_LEVEL", "LOUD")
    printed = _run("--help").output
    assert [name for name, _ in describe_variables(Settings) if name not in printed] == []


def test_the_command_shows_values_and_sources_but_no_secret(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".env").write_text(
        "ONEX_POSTGRES_URL=postgresql://ada:s3cret@db/onex\n"
        "ONEX_KAFKA_SASL_MECHANISM=PLAIN\n"
        "ONEX_KAFKA_SASL_USERNAME=ada\n"
        "ONEX_KAFKA_SASL_PASSWORD=s3cret\n"
    )
    monkeypatch.setenv("ONEX_KAFKA_SSL_KEY_PASSWORD", "s3cret")
    table, rows = _run("--describe"), _run("--json")
    assert (table.exit_code, rows.exit_code) == (0, 0)
    assert "s3cret" not in table.output + rows.output
    shown = {row["variable"]: (row["value"], row["source"]) for row in json.loads(rows.output)}
    assert shown["ONEX_POSTGRES_URL"] == ("postgresql://ada:***@db/onex", ".env")
    assert shown["ONEX_KAFKA_SASL_PASSWORD"] == ("***", ".env")
    assert shown["ONEX_KAFKA_SSL_KEY_PASSWORD"] == ("***", "environment")
    assert shown["ONEX_KAFKA_SASL_USERNAME"] == ("ada", ".env")
    assert "consecutive failures that open the breaker" in table.output


def test_settings_can_not_change_behind_somebody_s_back() -> None:
    with pytest.raises(ValueError, match="frozen"):
        load_settings().kafka.client_id = "other"


def test_printing_settings_shows_no_secret() -> None:
    kafka = KafkaSettings(
        sasl_mechanism="PLAIN",
        sasl_username="ada",
        sasl_password="s3cret",  # type: ignore[arg-type]
    )
    assert "s3cret" not in f"{kafka!r} {kafka}"
    assert kafka.model_dump_json().count("s3cret") == 0


def test_kafka_clients_get_addresses_security_and_limits() -> None:
    kafka = KafkaSettings(
        bootstrap_servers="a:9093, b, [::1]:9094",
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username="ada",
        sasl_password="s3cret",  # type: ignore[arg-type]
        ssl_ca_location=Path("ca.pem"),
        request_timeout_seconds=1.5,
    )
    assert kafka.addresses() == [("a", 9093), ("b", 9092), ("::1", 9094)]
    assert kafka.client_config() == {
        "bootstrap.servers": "a:9093, b, [::1]:9094",
        "client.id": "onex-platform",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "ada",
        "sasl.password": "s3cret",
        "ssl.ca.location": "ca.pem",
        "socket.timeout.ms": 1500,
    }


def test_without_an_address_a_kafka_client_names_the_way_out() -> None:
    with pytest.raises(ConfigurationError, match=r"onex stack up.*ONEX_KAFKA_BOOTSTRAP_SERVERS"):
        KafkaSettings().client_config()


_IMPORT_UNDER_WATCH = """
import sys
import pydantic_settings, dotenv, click, structlog  # their imports are not ours to judge

touched = []

def watch(event, arguments):
    if event.startswith(("socket.", "subprocess.")) or event == "os.system":
        touched.append(event)
    if event == "open" and not str(arguments[0]).endswith((".py", ".pyc", ".so")):
        touched.append(str(arguments[0]))

sys.addaudithook(watch)
import onex_platform, onex_platform.base.settings, onex_platform.base.errors, onex_platform.cli.main
import onex_platform.cli.settings
print(touched)
"""


def test_importing_the_package_opens_nothing(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("ONEX_LOG_LEVEL=not even looked at\n")
    done = subprocess.run(
        [sys.executable, "-c", _IMPORT_UNDER_WATCH],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert done.stdout.strip() == "[]"
