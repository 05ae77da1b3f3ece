"""The shared fixtures give what they promise."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient

from onex_platform.base.settings import Settings
from onex_platform_tests.support.stacks import connect

pytestmark = pytest.mark.servers


@pytest.mark.parametrize("_round", [1, 2])
def test_each_test_has_an_empty_database(database_settings: Settings, _round: int) -> None:
    assert database_settings.postgres.url is not None
    assert database_settings.postgres.url.get_secret_value().startswith("postgresql+psycopg://")
    with connect(database_settings) as connection:
        connection.execute("CREATE TABLE only_here ()")


def test_the_broker_answers(kafka_settings: Settings) -> None:
    assert AdminClient(kafka_settings.kafka.client_config()).list_topics(timeout=10).brokers
