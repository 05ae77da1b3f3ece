"""Every concrete topic name of the specifications: its dialect, or the rule that refuses it."""

from __future__ import annotations

import pytest

from onex_platform.base.errors import ConfigurationError
from onex_platform.topics.grammar import EnumTopicDialect, parse
from onex_platform.topics.policy import load_policy

_ONEX = [
    "onex.node.introspection.published.v1",
    "onex.node.heartbeat.published.v1",
    "onex.node.shutdown.announced.v1",
    "onex.registry.introspection.requested.v1",
    "onex.registry.node.registered.v1",
    "onex.registry.node.registration_failed.v1",
    "onex.registry.node.deregistered.v1",
    "onex.registry.workflow.started.v1",
    "onex.registry.workflow.completed.v1",
    "onex.registry.workflow.failed.v1",
    "onex.infra.circuit_breaker.state_changed.v1",
    "onex.infra.error.detected.v1",
    "tenant-123.onex.node.introspection.published.v1",
]
_NAMESPACE = [
    f"prod.omnibase.{topic}.v1"
    for topic in [
        "onex.evt.contract-created",
        "onex.evt.contract-updated",
        "onex.cmd.generate-node",
        "validator.evt.test-run-started",
        "validator.evt.test-run-completed",
        "validator.cmd.run-suite",
        "validator.rty.test-run-completed",
        "validator.dlt.test-run-completed",
        "registry.evt.asset-registered",
        "registry.cmd.register-asset",
        "registry.cdc.assets",
        "prism.evt.policy-updated",
        "intelcrawler.evt.crawl-finding",
        "memory.evt.context-stamped",
        "memory.cdc.embeddings",
        "gateway.aud.request",
        "gateway.log.access",
        "security.met.pii-redaction",
        "kb.qrs.search-requests",
        "kb.qrs.search-replies",
        "orchestrator.ctl.lease-heartbeat",
        "orchestrator.ctl.task-schedule",
    ]
]
_SNAPSHOT = ["onex.snapshot.platform.registration-snapshots.v1"]
_LEGACY = ["node.introspection", "node.heartbeat", "node.request_introspection"]


@pytest.mark.parametrize(
    ("names", "dialect"),
    [
        (_ONEX, EnumTopicDialect.ONEX),
        (_NAMESPACE, EnumTopicDialect.NAMESPACE),
        (_SNAPSHOT, EnumTopicDialect.SNAPSHOT),
        (_LEGACY, EnumTopicDialect.LEGACY),
    ],
)
def test_names_parse_under_their_dialect(names: list[str], dialect: EnumTopicDialect) -> None:
    for name in names:
        assert parse(name).dialect is dialect
        assert str(parse(name)) == name


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("onex.registration.snapshots", "the onex form is"),
        ("prod.registration.snapshots.v1", "the namespace form is"),
        ("dev.registration.snapshots.v1", "the namespace form is"),
        ("prod.discovery.snapshots.v1", "the namespace form is"),
        ("onex.node.introspection.published", "the onex form is"),
        ("onex.evt.contract-created", "the onex form is"),
    ],
)
def test_superseded_and_shortened_names_are_refused_by_their_form(name: str, rule: str) -> None:
    with pytest.raises(ConfigurationError, match=rule):
        parse(name)


def test_the_misspelt_tenant_is_refused_with_the_right_one() -> None:
    name = parse("prod.omnabase.validator.evt.test-run-completed.v1")
    with pytest.raises(ConfigurationError, match=r"tenant 'omnabase'.*did you mean 'omnibase'\?"):
        load_policy().require_known(name)
    for right in _NAMESPACE:
        load_policy().require_known(parse(right))
