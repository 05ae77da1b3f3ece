"""The catalogue: its figures, checked against the specifications, and how its parts must fit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import onex_platform
from onex_platform.base.errors import ConfigurationError
from onex_platform.base.settings import Settings
from onex_platform.domain.events import EnumEventKind
from onex_platform.topics.catalogue import (
    Catalogue,
    load_catalogue,
    load_whole_catalogue,
    require_ledger_beyond_retention,
)
from onex_platform.topics.grammar import EnumTopicDialect
from onex_platform.topics.migration_intent import EnumMigrationPhase as Phase
from onex_platform_tests.support.contracts import event, legacy, snapshot
from onex_platform_tests.support.moving_topics import BACK, LIFT, intent

_HOUR = 3_600_000
_DAY = 24 * _HOUR

# topic, key, retention in ms, partitions, direction, lag category, read by the registration fold
_EXPECTED = """
onex.node.introspection.published.v1              node_id         1d   3   node → registry   introspection   yes
onex.node.heartbeat.published.v1                  node_id         1h   3   node → registry   heartbeats      yes
onex.node.shutdown.announced.v1                   node_id         1d   3   node → registry   registry_state  yes
onex.registry.introspection.requested.v1          request_id      1h   3   registry → nodes  introspection   yes
onex.registry.node.registered.v1                  node_id         7d   3   internal          registry_state  yes
onex.registry.node.registration_failed.v1         node_id         7d   3   internal          registry_state  yes
onex.registry.node.deregistered.v1                node_id         7d   3   internal          registry_state  yes
onex.registry.workflow.started.v1                 workflow_id     7d   3   internal          workflow        no
onex.registry.workflow.completed.v1               workflow_id     30d  3   internal          workflow        no
onex.registry.workflow.failed.v1                  workflow_id     30d  3   internal          workflow        no
onex.infra.circuit_breaker.state_changed.v1       service_name    7d   3   internal          infrastructure  no
onex.infra.error.detected.v1                      correlation_id  7d   3   internal          infrastructure  no
onex.registry.node.accepted.v1                    node_id         7d   3   internal          registry_state  yes
onex.registry.node.ack_requested.v1               node_id         7d   3   registry → nodes  registry_state  yes
onex.node.ack.published.v1                        node_id         7d   3   node → registry   registry_state  yes
onex.registry.node.ack_timed_out.v1               node_id         7d   3   internal          registry_state  yes
onex.registry.node.liveness_expired.v1            node_id         7d   3   internal          registry_state  yes
onex.snapshot.platform.registration-snapshots.v1  entity_id       -    12  internal          registry_state  no
node.introspection                                node_id         1d   3   node → registry   introspection   yes
node.heartbeat                                    node_id         1h   3   node → registry   heartbeats      yes
node.request_introspection                        request_id      1h   3   registry → nodes  introspection   yes
"""  # noqa: E501 - one topic, one line
_RETENTION_MS = {"1h": _HOUR, "1d": _DAY, "7d": 7 * _DAY, "30d": 30 * _DAY, "-": -1}
_ROWS = [tuple(re.split(r"\s{2,}", line)) for line in _EXPECTED.strip().splitlines()]
# The set that specification 004 ends with, its misspelt tenant mended.
_EXAMPLES = {
    f"prod.omnibase.{topic}.v1"
    for topic in (
        "onex.evt.contract-created",
        "onex.evt.contract-updated",
        "onex.cmd.generate-node",
        "validator.evt.test-run-started",
        "validator.evt.test-run-completed",
        "validator.cmd.run-suite",
        "registry.evt.asset-registered",
        "registry.cmd.register-asset",
        "prism.evt.policy-updated",
        "intelcrawler.evt.crawl-finding",
        "gateway.aud.request",
        "security.met.pii-redaction",
        "kb.qrs.search-requests",
        "kb.qrs.search-replies",
    )
}
_TWINS = {
    "node.introspection": "onex.node.introspection.published.v1",
    "node.heartbeat": "onex.node.heartbeat.published.v1",
    "node.request_introspection": "onex.registry.introspection.requested.v1",
}


def test_it_holds_exactly_the_topics_of_the_specifications() -> None:
    assert len(_ROWS) == 12 + 5 + 1 + 3
    assert {contract.topic for contract in load_catalogue()} == {row[0] for row in _ROWS}


@pytest.mark.parametrize("row", _ROWS, ids=lambda row: row[0])
def test_each_topic_has_the_figures_of_the_specifications(row: tuple[str, ...]) -> None:
    topic, key, retention, partitions, direction, category, read_by_the_fold = row
    contract = load_catalogue()[topic]
    assert contract.key == key
    assert contract.kafka_config("prod")["retention.ms"] == str(_RETENTION_MS[retention])
    assert contract.partitions == int(partitions)
    assert contract.direction == direction
    assert contract.category == category
    assert contract.registration_input is (read_by_the_fold == "yes")


def test_only_the_snapshot_topic_is_compacted_and_as_the_specification_says() -> None:
    compacted = [c for c in load_catalogue() if c.cleanup_policy == "compact"]
    assert compacted == [load_catalogue().snapshot("registration")]
    config = compacted[0].kafka_config("prod")
    assert {name: config[name] for name in config if "compaction" in name} == {
        "min.compaction.lag.ms": "60000",
        "max.compaction.lag.ms": "300000",
    }
    assert config["segment.bytes"] == str(100 * 1024 * 1024)
    assert config["min.insync.replicas"] == "2"
    assert int(config["delete.retention.ms"]) > 0
    assert compacted[0].partitions_reason


def test_time_is_the_broker_s_on_every_topic_that_the_platform_reads() -> None:
    for contract in load_catalogue():
        stamped = contract.kafka_config("prod")["message.timestamp.type"]
        assert stamped == ("LogAppendTime" if "registry" in contract.consumers else "CreateTime")
    assert all(c.timestamp_type == "LogAppendTime" for c in load_catalogue().registration_inputs())


def test_every_event_kind_has_its_canonical_topic() -> None:
    assert len(EnumEventKind) == 17
    for kind in EnumEventKind:
        contract = load_catalogue().for_kind(kind)
        assert contract.topic == f"onex.{kind.value}.v1"
        assert contract.event_kind is kind


def test_legacy_names_lead_to_their_twins() -> None:
    catalogue = load_catalogue()
    assert {contract.topic: contract.legacy_of for contract in catalogue.legacy()} == _TWINS
    for name, twin in _TWINS.items():
        assert catalogue[name].name.dialect is EnumTopicDialect.LEGACY
        assert catalogue.canonical(name) is catalogue[twin] is catalogue.canonical(twin)
        assert catalogue[name].event_kind is catalogue[twin].event_kind


def test_it_is_read_once_per_process() -> None:
    assert load_catalogue() is load_catalogue()


def test_an_unknown_name_is_answered_with_the_nearest_one() -> None:
    assert "onex.node.heartbeat.publish.v1" not in load_catalogue()
    with pytest.raises(ConfigurationError, match=r"Did you mean onex\.node\.heartbeat\.published"):
        load_catalogue()["onex.node.heartbeat.publish.v1"]
    with pytest.raises(ConfigurationError, match="onex topics list"):
        load_catalogue()["something"]


def test_what_the_catalogue_lacks_is_said() -> None:
    catalogue = Catalogue([event()])
    with pytest.raises(ConfigurationError, match=r"node\.ack\.published"):
        catalogue.for_kind(EnumEventKind.NODE_ACK)
    with pytest.raises(ConfigurationError, match="discovery"):
        catalogue.snapshot("discovery")


def test_a_newer_contract_alone_changes_nothing_that_is_published() -> None:
    versions = [event(topic=f"onex.node.heartbeat.published.v{n}") for n in (2, 10, 1)]
    outlets = Catalogue(versions).outlets(EnumEventKind.NODE_HEARTBEAT)
    assert [outlet.topic for outlet in outlets] == ["onex.node.heartbeat.published.v1"]


def test_one_topic_has_one_contract() -> None:
    with pytest.raises(ConfigurationError, match="has 2 contracts"):
        Catalogue([event(), event(description="Another one.")])


def test_one_domain_has_one_snapshot_topic() -> None:
    other = snapshot(topic="onex.snapshot.other.registration-snapshots.v1")
    with pytest.raises(ConfigurationError, match="'registration' has 2 snapshot topics"):
        Catalogue([snapshot(), other])


def test_snapshots_are_published_and_read_by_the_phase_of_their_topics_move() -> None:
    v1, v2 = (snapshot(topic=re.sub(r"\d+$", n, snapshot().topic)) for n in ("1", "2"))
    whole = Catalogue([v2, v1], {v1.topic: intent(v2.topic)})
    assert (whole.snapshot("registration"), whole.snapshots("registration")) == (v1, (v1,))
    expected = {
        Phase.ASSESS: (v1, (v1,)),
        Phase.DUAL: (v1, (v1, v2)),
        Phase.MOVE: (v2, (v1, v2)),
        Phase.FREEZE: (v2, (v2,)),
        Phase.RETIRED: (v2, (v2,)),
    }
    for phase, (read, written) in expected.items():
        moved = whole.at({v1.topic: phase})
        assert (moved.snapshot("registration"), moved.snapshots("registration")) == (read, written)


@pytest.mark.parametrize("field", ["lift", "groups"])
def test_snapshots_are_neither_lifted_nor_handed_over(field: str) -> None:
    v1, v2 = (snapshot(topic=re.sub(r"\d+$", n, snapshot().topic)) for n in ("1", "2"))
    fields = {"lift": {"lift": LIFT, "back": BACK}, "groups": {"groups": {"a": "a-onex-v2"}}}
    with pytest.raises(ConfigurationError, match=f"{field} does not go with {v1.topic}"):
        Catalogue([v1, v2], {v1.topic: intent(v2.topic, **fields[field])})


def test_names_that_kafka_s_metrics_confuse_are_refused() -> None:
    # The grammar and the event kinds leave hardly a collision, so one is put past them.
    confusing = event().model_copy(update={"topic": "node_heartbeat"})
    with pytest.raises(ConfigurationError, match=r"node\.heartbeat and node_heartbeat differ only"):
        Catalogue([event(), legacy(), confusing])


def test_a_legacy_name_needs_its_twin() -> None:
    with pytest.raises(ConfigurationError, match="is no canonical topic of the catalogue"):
        Catalogue([legacy()])


@pytest.mark.parametrize(
    ("field", "value"),
    [("retention", "P1D"), ("category", "workflow"), ("registration_input", False)],
)
def test_a_legacy_topic_is_treated_like_its_twin(field: str, value: object) -> None:
    with pytest.raises(ConfigurationError, match=rf"node\.heartbeat: {field}=.* differs from"):
        Catalogue([event(), legacy(**{field: value})])


def test_the_ledger_of_event_ids_outlives_every_input() -> None:
    require_ledger_beyond_retention(load_catalogue(), Settings().registration.ledger_days)
    with pytest.raises(ConfigurationError, match="ONEX_REGISTRATION_LEDGER_DAYS=8 is too short"):
        require_ledger_beyond_retention(load_catalogue(), 8)  # 7 days, and the open segment's span
    require_ledger_beyond_retention(load_catalogue(), 9)


def test_topics_that_the_fold_does_not_read_do_not_bind_the_ledger() -> None:
    assert any(c.kafka_config("prod")["retention.ms"] == str(30 * _DAY) for c in load_catalogue())
    assert Settings().registration.ledger_days == 30


def test_a_folder_without_contracts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no topic contract in"):
        Catalogue.from_folder(tmp_path / "missing")


def test_topics_of_other_services_stand_in_the_whole_catalogue() -> None:
    whole = load_whole_catalogue()
    assert {contract.topic for contract in load_catalogue()} < {c.topic for c in whole}
    others = {c.topic for c in whole if c.name.dialect is EnumTopicDialect.NAMESPACE}
    assert {f"prod.omnibase.{topic}" for topic in others} >= _EXAMPLES
    assert {topic.split(".")[1] for topic in others if topic.startswith("platform.")} == {
        "aud",
        "met",
        "rty",
        "dlt",
        "ctl",
        "evt",
    }


def test_no_topic_name_is_spelled_out_in_the_code() -> None:
    root = Path(onex_platform.__file__).parent
    legacy_names = "|".join(re.escape(contract.topic) for contract in load_catalogue().legacy())
    spelled = re.compile(
        rf"""onex\.[a-z_]+\.[\w.-]+\.v\d | ["'](?:{legacy_names})["']""", re.VERBOSE
    )
    sources = list(root.rglob("*.py"))
    assert len(sources) > 20
    assert [
        f"{path.relative_to(root)}:{number}: {line.strip()}"
        for path in sources
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if spelled.search(line)
    ] == []
