"""Commands that show values hide what is highly private in them."""

from __future__ import annotations

import json

import pytest

from onex_platform.cli.flow_commands.shown_values import shown
from onex_platform.domain.headers import PiiLevel

LEVELS: dict[str, PiiLevel] = {"payload.email": "high", "payload.city": "low"}


def test_high_fields_are_hidden_and_others_are_shown() -> None:
    event = {"payload": {"email": "ada@example.org", "city": "Zürich"}}
    seen = shown(json.dumps(event).encode(), LEVELS)
    assert seen is not None
    assert json.loads(seen) == {"payload": {"email": "***", "city": "Zürich"}}


def test_a_field_that_is_written_twice_is_not_shown_by_its_first_value() -> None:
    seen = shown(b'{"payload": {"email": "ada"}, "payload": {}}', LEVELS)
    assert seen == b'{"payload": {}}'


@pytest.mark.parametrize("value", [None, b"", b"\xff", b"{", b"[1, 2]", b"[" * 100_000])
def test_what_is_no_json_object_is_shown_as_it_is(value: bytes | None) -> None:
    assert shown(value, LEVELS) == value


def test_a_topic_without_private_fields_shows_every_byte() -> None:
    assert shown(b'{ "a":1}', {}) == b'{ "a":1}'
