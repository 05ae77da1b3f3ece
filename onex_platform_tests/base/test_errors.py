"""The error family: one sentence, the way out, a correlation id, no secrets, an exit code."""

from __future__ import annotations

import pytest

from onex_platform.base import errors
from onex_platform.base.errors import (
    ConfigurationError,
    InfraError,
    OnexError,
    interruption_behind,
)
from onex_platform.base.telemetry import correlated


def test_an_error_reads_as_sentence_and_way_out() -> None:
    error = ConfigurationError("Port 'x' is not a number.", hint="Set ONEX_PORT to a number.")
    assert error.message == "Port 'x' is not a number."
    assert str(error) == "Port 'x' is not a number. Set ONEX_PORT to a number."
    assert str(OnexError("Nothing to add.")) == "Nothing to add."


def test_secrets_are_gone_before_anybody_can_print_them() -> None:
    error = InfraError(
        "connect to postgresql://ada:s3cret@db failed",
        hint="check password=s3cret",
        url="postgresql://ada:s3cret@db",
    )
    for shown in (str(error), repr(error), repr(error.args), str(error.hint), str(error.context)):
        assert "s3cret" not in shown


def test_an_error_carries_the_correlation_id_of_its_work() -> None:
    with correlated() as current:
        assert OnexError("inside").correlation_id == current
    assert OnexError("outside").correlation_id != current


@pytest.mark.parametrize(
    ("name", "exit_code"),
    [
        ("OnexError", 1),
        ("ConfigurationError", 2),
        ("PrerequisiteError", 3),
        ("InfraError", 4),
        ("InfraConnectionError", 4),
        ("InfraTimeoutError", 4),
        ("InfraUnavailableError", 4),
    ],
)
def test_each_kind_has_its_exit_code(name: str, exit_code: int) -> None:
    kind: type[OnexError] = getattr(errors, name)
    assert kind("message").exit_code == exit_code


def raised_while(behind: BaseException, error: Exception, cause: BaseException | None) -> Exception:
    """The error, as it leaves a block that the other one had ended."""
    try:
        try:
            raise behind
        except BaseException:
            if cause is error:
                raise error from None
            if cause is not None:
                raise error from cause
            raise error  # noqa: B904 - as tidying up does
    except Exception as left:
        return left


def test_what_told_us_to_end_is_found_behind_what_tidying_up_ran_into() -> None:
    told, failed = KeyboardInterrupt(), ValueError("no rollback")
    plain = raised_while(told, failed, None)
    assert interruption_behind(plain) is told
    assert interruption_behind(raised_while(plain, OnexError("ours"), plain)) is told
    assert interruption_behind(told) is told


def test_an_error_of_its_own_has_nothing_behind_it() -> None:
    assert interruption_behind(ValueError()) is None
    assert interruption_behind(raised_while(KeyError(), ValueError(), None)) is None
    assert interruption_behind(raised_while(GeneratorExit(), ValueError(), None)) is None
    own = ValueError()
    assert interruption_behind(raised_while(KeyboardInterrupt(), own, own)) is None
    assert interruption_behind(raised_while(KeyboardInterrupt(), ValueError(), KeyError())) is None
