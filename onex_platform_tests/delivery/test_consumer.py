"""The retrying consumer on a real broker."""

from __future__ import annotations

import pytest

from onex_platform.base.settings import Settings
from onex_platform_tests.support.delivery_runs import Diary, member, new_config, send

pytestmark = pytest.mark.servers

KEYS = ["a", "b", "c"] * 20


def test_records_are_handled_key_by_key_in_order(kafka_settings: Settings) -> None:
    config = new_config(kafka_settings)
    send(kafka_settings, config.source, KEYS)
    diary = Diary()
    with member(kafka_settings, config, diary) as running:
        running.work_until(lambda: diary.count == len(KEYS))
    assert diary.seen == {key: [n for n, k in enumerate(KEYS) if k == key] for key in "abc"}
    again = Diary()
    with member(kafka_settings, config, again) as running:
        send(kafka_settings, config.source, ["a"], first=1000)
        running.work_until(lambda: again.count > 0)
    assert again.seen == {"a": [1000]}


def test_a_failing_key_waits_and_the_others_go_on(kafka_settings: Settings) -> None:
    config = new_config(kafka_settings)
    send(kafka_settings, config.source, KEYS)
    mended: list[bool] = []
    diary = Diary(lambda d: RuntimeError("no") if d.key == b"a" and not mended else None)
    with member(kafka_settings, config, diary) as running:
        running.work_until(lambda: diary.count == 40 and running.consumer.waiting() == 20)
        assert "a" not in diary.seen
        mended.append(True)
        running.ahead = 61_000
        running.work_until(lambda: diary.count == 60)
    assert diary.seen["a"] == [n for n, key in enumerate(KEYS) if key == "a"]
