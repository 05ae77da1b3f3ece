"""The quarterly review: what nobody uses on a real broker, and what falls due."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import dagster as dg
import pytest
from confluent_kafka import TopicPartition

from onex_platform.base.settings import Settings
from onex_platform.engines.kafka.clients import (
    KafkaRecord,
    open_admin,
    open_consumer,
    open_producer,
    produce_all,
)
from onex_platform.engines.kafka.topic_admin import TopicLayout, create, delete
from onex_platform.governance.defs import build_definitions
from onex_platform.governance.governed import Governed
from onex_platform.governance.review import Due, falling_due, review, unused
from onex_platform.topics.catalogue import Catalogue, load_whole_catalogue
from onex_platform.topics.contract import Deprecation
from onex_platform.topics.policy import PolicyException, load_policy

_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_QUARTER = timedelta(days=90)
_COMMANDS = {
    name: f"sand.omnibase.{name}"
    for name in (
        "registry.cmd.register-asset.v1",
        "validator.cmd.run-suite.v1",
        "kb.qrs.search-requests.v1",
    )
}


def _as_written(_settings: Settings, catalogue: Catalogue) -> Catalogue:
    """No topic has moved."""
    return catalogue


@pytest.mark.parametrize(
    ("age", "groups", "reason"),
    [
        (None, {"g"}, "no record ever"),
        (_QUARTER + timedelta(milliseconds=1), {"g"}, "no record since 2025-10-02"),
        (_QUARTER, {"g"}, None),
        (_QUARTER, set(), "no group has read it"),
    ],
)
def test_a_topic_is_unused_after_a_quarter_without_a_record_or_without_a_group(
    age: timedelta | None, groups: set[str], reason: str | None
) -> None:
    written = {} if age is None else {"t": _NOW - age}
    found = [due.reason for due in unused(["t"], written, {"t": groups}, _NOW)]
    assert found == ([] if reason is None else [reason])


def test_exceptions_deprecations_and_keys_fall_due_before_the_next_review() -> None:
    today = date(2026, 1, 1)
    first, second, third, *_ = load_whole_catalogue()

    def ends(days: int) -> Deprecation:
        return first.deprecation.model_copy(
            update={"since": today + timedelta(days=days) - first.deprecation.notice}
        )

    catalogue = Catalogue(
        [
            first.model_copy(update={"deprecation": ends(90)}),
            second.model_copy(update={"deprecation": ends(91)}),
            third.model_copy(update={"encryption": "envelope"}),
        ]
    )
    excused = [
        PolicyException(
            rule="K001",
            topic=f"t{days}",
            reason="a reason of some length",
            owner="registry",
            expires=today + timedelta(days=days),
        )
        for days in (90, 91)
    ]
    policy = load_policy().model_copy(update={"exceptions": tuple(excused)})
    found = {(due.kind, due.name) for due in falling_due(catalogue, policy, today)}
    assert found == {("exception", "t90"), ("deprecation", first.topic), ("keys", third.topic)}


@pytest.mark.servers
def test_commands_and_queries_that_nobody_uses_are_found_on_the_broker(
    kafka_settings: Settings,
) -> None:
    settings = kafka_settings.model_copy(update={"environment": "sand"})
    old, unread, used = _COMMANDS.values()
    long_ago = datetime.now(UTC) - timedelta(days=100)
    with open_admin(settings) as admin:
        create(admin, [TopicLayout(n, 1, 1, {"retention.ms": "-1"}) for n in _COMMANDS.values()])
        try:
            with open_producer(settings) as producer:
                records = [
                    KafkaRecord(old, b"{}", "k", timestamp_ms=int(long_ago.timestamp() * 1000)),
                    KafkaRecord(unread, b"{}", "k"),
                    KafkaRecord(used, b"{}", "k"),
                ]
                assert produce_all(producer, records) == 3
            with open_consumer(settings, "omnibase.searchers") as consumer:
                consumer.commit(offsets=[TopicPartition(used, 0, 1)], asynchronous=False)
            found = review(Governed.of(settings, load_whole_catalogue()))
        finally:
            for name in _COMMANDS.values():
                delete(admin, name)
    about = [due for due in found if due.name in _COMMANDS.values()]
    assert about == [
        Due(
            "unused topic",
            old,
            f"no record since {long_ago:%Y-%m-%d}",
        ),
        Due("unread topic", unread, "no group has read it"),
    ]


def test_dagster_reviews_on_the_first_day_of_each_quarter() -> None:
    [schedule] = build_definitions(load_whole_catalogue(), _as_written).schedules or ()
    assert isinstance(schedule, dg.ScheduleDefinition)
    assert (schedule.cron_schedule, schedule.job_name) == ("0 6 1 1,4,7,10 *", "topic_review")
    assert schedule.default_status is dg.DefaultScheduleStatus.RUNNING


@pytest.mark.servers
def test_the_scheduled_job_tells_how_much_is_due(kafka_settings: Settings) -> None:
    own = dg.Definitions(resources={"settings": kafka_settings})
    job = dg.Definitions.merge(
        build_definitions(load_whole_catalogue(), _as_written), own
    ).resolve_job_def("topic_review")
    done = job.execute_in_process()
    [output] = [event for event in done.all_events if event.is_successful_output]
    assert "due" in output.step_output_data.metadata


@pytest.mark.servers
def test_the_drift_check_has_a_verdict_and_numbers(kafka_settings: Settings) -> None:
    [check] = build_definitions(load_whole_catalogue(), _as_written).asset_checks or ()
    assert isinstance(check, dg.AssetChecksDefinition)
    settings = kafka_settings.model_copy(update={"environment": "test"})
    verdict = check(settings=settings)
    assert isinstance(verdict, dg.AssetCheckResult)
    assert not verdict.passed  # the environment "test" has topics that nobody has created here
    numbers = {name: found.value for name, found in verdict.metadata.items()}
    assert numbers["steps"] == numbers["steps: create-topic"]
    assert numbers["drift"].startswith("create-topic  ")
