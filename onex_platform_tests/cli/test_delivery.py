"""`onex delivery`: an operator sees a dead key, previews its letters and brings it back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from uuid import uuid4

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import TopicPartition

from onex_platform.base.errors import ConfigurationError
from onex_platform.base.settings import Settings, address_variables
from onex_platform.cli.flow_commands import delivery
from onex_platform.cli.main import cli
from onex_platform.delivery.config import DeliveryConfig, broker_names
from onex_platform.delivery.errors import PermanentError
from onex_platform.engines.kafka.clients import (
    KafkaRecord,
    open_admin,
    open_producer,
    produce_all,
)
from onex_platform.topics.catalogue import Catalogue, load_whole_catalogue
from onex_platform.topics.policy import load_policy
from onex_platform_tests.support.delivery_runs import Diary, made, member, send

pytestmark = pytest.mark.servers

TOPIC = "validator.evt.test-run-completed.v1"


@pytest.fixture
def config(kafka_settings: Settings) -> Iterator[DeliveryConfig]:
    """The contract's topics on the shared broker, and a group of the test's own."""
    naming = broker_names(kafka_settings, load_policy().home)
    contract = load_whole_catalogue()[TOPIC]
    found = DeliveryConfig.from_contract(contract, uuid4().hex, naming)
    with made(kafka_settings, found):
        yield replace(found, commit_seconds=0.05)


def onex(settings: Settings, config: DeliveryConfig, *arguments: str) -> Result:
    whose = ("--topic", TOPIC, "--group", config.group)
    return CliRunner().invoke(
        cli, ["delivery", *arguments, *whose], env=address_variables(settings)
    )


def test_a_dead_key_is_listed_previewed_and_replayed(
    kafka_settings: Settings, config: DeliveryConfig
) -> None:
    def listed() -> list[tuple[str, str, int]]:
        found = json.loads(onex(kafka_settings, config, "list", "--json").stdout)
        return [(key["key"], key["state"], key["waiting"]) for key in found]

    assert "Nothing of" in onex(kafka_settings, config, "list").stdout
    send(kafka_settings, config.source, ["run-7", "run-8", "run-7"])
    mended: list[bool] = []
    diary = Diary(lambda d: PermanentError("no") if d.key == b"run-7" and not mended else None)
    with member(kafka_settings, config, diary) as running:
        running.work_until(lambda: listed() == [("run-7", "dead", 0)])
        preview = json.loads(onex(kafka_settings, config, "preview", "run-7", "--json").stdout)
        assert [letter["value"] for letter in preview] == ["0", "2"]
        assert "2 letters would be handled again." in (
            onex(kafka_settings, config, "preview", "--all").stdout
        )
        mended.append(True)
        asked = onex(kafka_settings, config, "replay", "run-7")
        assert asked.stdout.startswith("1 keys: replay asked"), asked.output
        running.work_until(lambda: diary.seen["run-7"] == [0, 2] and listed() == [])
    second = onex(kafka_settings, config, "replay", "run-7")
    assert isinstance(second.exception, ConfigurationError)
    assert "'run-7' is not dead" in str(second.exception)


def test_a_preview_hides_private_values(
    kafka_settings: Settings, config: DeliveryConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = Catalogue([load_whole_catalogue()[TOPIC].with_private_fields({"email": "high"})])
    monkeypatch.setattr(delivery, "load_whole_catalogue", lambda: private)
    value = json.dumps({"email": "ada@example.org", "size": 3})
    with open_producer(kafka_settings) as producer:
        produce_all(producer, [KafkaRecord(config.source, value, "run-7")])

    def fail(_: object) -> None:
        raise PermanentError("no")

    with member(kafka_settings, config, fail) as running:
        running.work_until(lambda: "state=dead" in onex(kafka_settings, config, "list").stdout)
    [letter] = json.loads(onex(kafka_settings, config, "preview", "run-7", "--json").stdout)
    assert json.loads(letter["value"]) == {"email": "***", "size": 3}
    assert letter["bytes"] == len(value)


def test_a_released_key_goes_on_without_its_letters(
    kafka_settings: Settings, config: DeliveryConfig
) -> None:
    send(kafka_settings, config.source, ["run-7"])
    diary = Diary(lambda d: PermanentError("no") if d.value == b"0" else None)
    with member(kafka_settings, config, diary) as running:
        running.work_until(lambda: "state=dead" in onex(kafka_settings, config, "list").stdout)
        assert onex(kafka_settings, config, "release", "--all").exit_code == 0
        running.work_until(lambda: "Nothing of" in onex(kafka_settings, config, "list").stdout)
        send(kafka_settings, config.source, ["run-7"], first=1)
        running.work_until(lambda: diary.seen["run-7"] == [1])


def test_a_key_whose_letters_are_gone_is_not_replayed_but_released(
    kafka_settings: Settings, config: DeliveryConfig
) -> None:
    send(kafka_settings, config.source, ["run-7", "run-7"])
    diary = Diary(lambda d: PermanentError("no") if d.value == b"0" else None)
    with member(kafka_settings, config, diary) as running:
        dead = "state=dead  waiting=0"
        running.work_until(lambda: dead in onex(kafka_settings, config, "list").stdout)
        with open_admin(kafka_settings) as admin:
            [deletion] = admin.delete_records([TopicPartition(config.dead_letters, 0, 1)]).values()
            deletion.result()
        preview = onex(kafka_settings, config, "preview", "run-7")
        assert "'run-7' are gone: it can be released" in preview.stderr
        assert preview.stdout == "0 letters would be handled again.\n"
        assert onex(kafka_settings, config, "replay", "run-7").exit_code == 0
        running.work_until(lambda: [alert.name for alert in running.alerts] == ["letters_lost"])
        assert onex(kafka_settings, config, "release", "run-7").exit_code == 0
        running.work_until(lambda: "Nothing of" in onex(kafka_settings, config, "list").stdout)
    assert diary.seen == {}


def test_what_is_meant_has_to_be_said(kafka_settings: Settings, config: DeliveryConfig) -> None:
    for arguments in (["replay"], ["replay", "run-7", "--all"]):
        ran = onex(kafka_settings, config, *arguments)
        assert "Either keys or --all" in str(ran.exception)
