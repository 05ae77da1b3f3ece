"""The canaries' sensor: it does nothing where they are not enabled."""

from __future__ import annotations

import dagster as dg
from pydantic import SecretStr

from onex_platform.base.server_settings import PostgresSettings
from onex_platform.base.settings import Settings
from onex_platform.context import open_platform
from onex_platform.definitions import build_definitions
from onex_platform.topics.catalogue import load_catalogue


def test_nothing_is_asked_or_sent_where_canaries_are_off() -> None:
    nowhere = PostgresSettings(url=SecretStr("postgresql://nobody@127.0.0.1:1/nothing"))
    settings = Settings(postgres=nowhere)
    sensor = build_definitions(settings=settings).get_sensor_def("follow_canaries")
    with (
        open_platform(settings, load_catalogue()) as platform,
        dg.build_sensor_context(resources={"platform": platform}) as context,
    ):
        found = sensor(context)
    assert isinstance(found, dg.SkipReason)
    assert found.skip_message == "ONEX_CANARY_ENABLED is off."
