"""A lane that stopped is told as an event, and a broker that is away fails nobody."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import AbstractContextManager, nullcontext

import pytest

from onex_platform.base import faults
from onex_platform.base.errors import InfraUnavailableError
from onex_platform.base.settings import KafkaSettings, Settings
from onex_platform.delivery.delivery_alarms import alarms_of
from onex_platform.delivery.work import Alert
from onex_platform.domain.events import EnumEventKind
from onex_platform.engines.kafka.clients import end_positions, read_to_end
from onex_platform.governance.provision import create_topics
from onex_platform.topics.catalogue import Catalogue, load_catalogue
from onex_platform.topics.migration_intent import EnumMigrationPhase as Phase
from onex_platform_tests.support.contracts import with_own_topics
from onex_platform_tests.support.delivery_runs import new_config
from onex_platform_tests.support.moving_topics import intent

pytestmark = pytest.mark.servers

ALERT = Alert("retry_refused", "rty takes no entries, so its partition pauses: it is gone")


class KilledError(Exception):
    pass


def _die() -> None:
    raise KilledError


@pytest.mark.parametrize(("when", "told"), [("before", 0), ("after", 1)])
def test_a_stopped_lane_is_told_as_an_event(kafka_settings: Settings, when: str, told: int) -> None:
    catalogue, config = load_catalogue(), new_config(kafka_settings)
    create_topics(kafka_settings, catalogue)
    topic = catalogue.for_kind(EnumEventKind.ERROR_DETECTED).topic
    before = end_positions(kafka_settings, [topic])
    raise_alarm = alarms_of(kafka_settings, lambda: nullcontext(catalogue), config)
    faults.arm(f"{when}:delivery.alert", _die)
    with pytest.raises(KilledError):
        raise_alarm(1, ALERT)
    assert len(list(read_to_end(kafka_settings, [topic], start=before))) == told
    raise_alarm(1, ALERT)
    *_, last = read_to_end(kafka_settings, [topic], start=before)
    payload = json.loads(last.value() or b"")["payload"]
    assert payload["error_code"] == "DELIVERY_STOPPED"
    assert payload["context"] == {"alert": "retry_refused", "group": config.group, "partition": 1}


def test_an_alarm_that_nobody_hears_fails_nobody(kafka_settings: Settings) -> None:
    away = kafka_settings.model_copy(
        update={
            "kafka": KafkaSettings(bootstrap_servers="127.0.0.1:1", connect_timeout_seconds=0.1)
        }
    )
    config = new_config(kafka_settings)
    alarms_of(away, lambda: nullcontext(load_catalogue()), config)(1, ALERT)

    def nobody_knows() -> AbstractContextManager[Catalogue]:
        raise InfraUnavailableError("the database that knows the phases is away")

    alarms_of(kafka_settings, nobody_knows, config)(1, ALERT)


def test_an_alert_goes_where_its_topic_has_moved_to_by_then(kafka_settings: Settings) -> None:
    own = with_own_topics(load_catalogue(), EnumEventKind.ERROR_DETECTED)
    source = own.for_kind(EnumEventKind.ERROR_DETECTED)
    target = source.model_copy(update={"topic": f"{source.topic}1"})
    catalogue = Catalogue([*own, target], {source.topic: intent(target.topic)})
    create_topics(kafka_settings, Catalogue([source, target]))
    phases = [Phase.ASSESS, Phase.DUAL, Phase.FREEZE]

    def published() -> AbstractContextManager[Catalogue]:
        return nullcontext(catalogue.at({source.topic: phases.pop(0)}))

    raise_alarm = alarms_of(kafka_settings, published, new_config(kafka_settings))
    for _ in range(3):
        raise_alarm(1, ALERT)
    found = Counter(m.topic() for m in read_to_end(kafka_settings, [source.topic, target.topic]))
    assert found == {source.topic: 2, target.topic: 2}
