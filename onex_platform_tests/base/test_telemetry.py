"""Logs: no secret gets through, whoever logs it and in whatever shape; correlation ids travel."""

from __future__ import annotations

import json
import logging
from uuid import uuid4

import pytest

from onex_platform.base.telemetry import (
    configure_logging,
    correlated,
    current_correlation_id,
    get_logger,
    hide_fields,
    hide_hosts,
    redact,
    redact_value,
)


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://ada:s3cret@db:5432/onex",
        "postgresql+psycopg://ada:s3cret/with/slashes@db/onex",
        "postgresql://ada:s3cret@with@signs@db/onex",
        "redis://:s3cret@cache",
        "password=s3cret",
        "sasl.password = s3cret, next",
        'password="s3cret with spaces" user=ada',
        '{"sasl_password": "s3cret"}',
        "{'api_key': 's3cret'}",
        "AWS_SECRET_ACCESS_KEY=s3cret",
        "secret_key: s3cret",
        "passphrase=s3cret",
        "https://host/path?token=s3cret&page=2",
        "Authorization: Bearer s3cret.s3cret.s3cret",
        "authorization: basic czNjcmV0czNjcmV0s3cret==",
        'jaas ScramLoginModule required username="ada" password="s3cret";',
    ],
)
def test_secrets_in_text_are_hidden(text: str) -> None:
    assert "s3cret" not in redact(text)
    assert "***" in redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://db:5432/onex for ada@example.org",
        "partition 3 of 12, key node_id",
        "the password is wrong",
        "3 tokens left",
    ],
)
def test_harmless_text_stays_as_it_is(text: str) -> None:
    assert redact(text) == text


def test_redaction_is_stable() -> None:
    once = redact("postgresql://ada:s3cret@db/onex?password=s3cret")
    assert redact(once) == once


def test_what_stands_around_a_secret_stays_readable() -> None:
    assert redact("connect postgresql://ada:pw@db:5432/onex failed") == (
        "connect postgresql://ada:***@db:5432/onex failed"
    )


class _Model:
    def __str__(self) -> str:
        return "url=postgresql://ada:s3cret@db/onex"


@pytest.mark.parametrize(
    "value",
    [
        {"outer": {"sasl.password": "s3cret"}},
        {"tokens": ["s3cret", "s3cret"]},
        ["postgresql://ada:s3cret@db"],
        ("password=s3cret",),
        {"password=s3cret"},
        ValueError("postgresql://ada:s3cret@db"),
        b"password=s3cret",
        _Model(),
    ],
)
def test_secrets_inside_values_are_hidden_however_deep(value: object) -> None:
    assert "s3cret" not in repr(redact_value("details", value))


def test_a_field_named_like_a_secret_shows_nothing_of_it() -> None:
    assert redact_value("sasl_password", "plain") == "***"
    assert redact_value("api-key", 42) == "***"
    assert redact_value("password", None) is None


def test_numbers_stay_numbers() -> None:
    assert redact_value("count", 3) == 3
    assert redact_value("ratio", 0.5) == 0.5
    assert redact_value("done", True) is True


def test_our_logs_and_the_standard_library_s_come_out_in_one_redacted_form(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logging(style="json")
    get_logger("onex.test").info("stack.started", url="postgresql://ada:s3cret@db", port=5432)
    logging.getLogger("librdkafka").warning("sasl.password=%s", "s3cret")
    ours, theirs = map(json.loads, capsys.readouterr().err.splitlines())
    assert ours["event"] == "stack.started"
    assert ours["url"] == "postgresql://ada:***@db"
    assert ours["port"] == 5432
    assert (theirs["logger"], theirs["level"]) == ("librdkafka", "warning")
    assert theirs["event"] == "sasl.password=***"


@pytest.mark.parametrize("style", ["console", "json"])
def test_tracebacks_are_redacted(style: str, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(style=style)  # type: ignore[arg-type]
    try:
        raise ValueError("postgresql://ada:s3cret@db")
    except ValueError as error:
        get_logger("onex.test").exception("ours", error=error)
        logging.getLogger("theirs").exception("theirs")
    printed = capsys.readouterr().err
    assert printed.count("ValueError: postgresql://ada:***@db") == 2
    assert "s3cret" not in printed


def test_the_level_is_honoured(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(level="WARNING")
    get_logger("onex.test").info("quiet")
    logging.getLogger("theirs").info("quiet")
    get_logger("onex.test").warning("loud")
    printed = capsys.readouterr().err
    assert "quiet" not in printed
    assert "loud" in printed


def test_everything_inside_one_piece_of_work_carries_its_correlation_id(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logging(style="json")
    chosen = uuid4()
    with correlated(chosen) as inside:
        assert inside == chosen == current_correlation_id()
        with correlated() as nested:
            assert nested == chosen
        get_logger("onex.test").info("inside")
    get_logger("onex.test").info("outside")
    inside_line, outside_line = map(json.loads, capsys.readouterr().err.splitlines())
    assert inside_line["correlation_id"] == str(chosen)
    assert "correlation_id" not in outside_line
    assert current_correlation_id() != chosen


@pytest.mark.parametrize(("level", "shown"), [("INFO", False), ("DEBUG", True)])
def test_a_librarys_own_account_of_migrations_is_for_debugging(
    level: str, shown: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logging(level)
    logging.getLogger("yoyo.migrations").info("applied")
    assert ("applied" in capsys.readouterr().err) is shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("PostgreSQL at db-1.internal:5432 is down", "PostgreSQL at <host> is down"),
        ("Kafka (10.0.0.7:9092, 10.0.0.8)", "Kafka (<host>, <host>)"),
        ("postgresql://ada:x@db:5432/onex", "postgresql://<host>/onex"),
        ("http://schemas/subjects", "http://<host>/subjects"),
        ("at 12:30:45 on 2026-03-01T12:00:00Z", "at 12:30:45 on 2026-03-01T12:00:00Z"),
        ("onex.node.heartbeat.published.v1 [3]", "onex.node.heartbeat.published.v1 [3]"),
    ],
)
def test_hosts_are_named_inside_only(text: str, shown: str) -> None:
    assert "<host>" not in redact(text)
    hide_hosts(True)
    assert redact(text) == shown


def test_private_fields_stay_out_of_logs(capsys: pytest.CaptureFixture[str]) -> None:
    hide_fields(["birthday_of_ada"])
    configure_logging(style="json")
    get_logger(__name__).info("told", birthday_of_ada="1815-12-10", other={"birthday_of_ada": 1})
    line = json.loads(capsys.readouterr().err)
    assert (line["birthday_of_ada"], line["other"]) == ("***", {"birthday_of_ada": "***"})
