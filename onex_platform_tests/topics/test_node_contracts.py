"""Nodes' contracts by the four rules, and the configuration that follows from them."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
import yaml
from pydantic import ValidationError

from onex_platform.base.errors import ConfigurationError
from onex_platform.topics.catalogue import load_catalogue
from onex_platform.topics.node_contracts import (
    ModelIntrospectionConfig,
    judge_node,
    read_node_contract,
)
from onex_platform.topics.policy import load_policy

_NODE = UUID(int=1)
_HEARTBEAT = {
    "topic": "onex.node.heartbeat.published.v1",
    "key": "node_id",
    "event_type": "heartbeat",
}
_REQUEST = {
    "topic": "onex.registry.introspection.requested.v1",
    "key": "request_id",
    "event_type": "request",
    "handler": "handle_introspection_request",
}


def _contract(folder: Path, node_type: str = "EFFECT", **channels: Any) -> Path:
    path = folder / "contract.yaml"
    document = {
        "meta": {"name": "registry-effect", "version": "1.2.0", "node_type": node_type},
        "event_channels": channels,
    }
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


def _broken(path: Path) -> list[str]:
    return [found.rule for found in judge_node(path, load_catalogue(), load_policy())]


def test_the_contracts_of_the_specification_pass(tmp_path: Path) -> None:
    effect = _contract(tmp_path, publishes=[_HEARTBEAT], subscribes=[_REQUEST])
    assert _broken(effect) == []
    registered = {
        "topic": "onex.registry.node.registered.v1",
        "key": "node_id",
        "event_type": "state_change",
    }
    orchestrator = _contract(
        tmp_path,
        "ORCHESTRATOR",
        publishes=[registered],
        subscribes=[
            _HEARTBEAT | {"topic": "onex.node.introspection.published.v1", "handler": "handle"}
        ],
    )
    assert _broken(orchestrator) == []


@pytest.mark.parametrize(
    ("rule", "node_type", "channels"),
    [
        ("D001", "EFFECT", {"publishes": [_HEARTBEAT | {"topic": "onex.node.heartbeat.sent.v1"}]}),
        ("D002", "EFFECT", {"publishes": [_HEARTBEAT | {"key": "request_id"}]}),
        ("D003", "EFFECT", {"subscribes": [_HEARTBEAT]}),
        (
            "D004",
            "COMPUTE",
            {
                "publishes": [
                    {
                        "topic": "onex.infra.error.detected.v1",
                        "key": "correlation_id",
                        "event_type": "error",
                    }
                ]
            },
        ),
    ],
)
def test_each_rule_catches_its_case(
    tmp_path: Path, rule: str, node_type: str, channels: dict[str, Any]
) -> None:
    assert _broken(_contract(tmp_path, node_type, **channels)) == [rule]


def test_a_broken_rule_is_told_with_its_line_and_the_nearest_topic(tmp_path: Path) -> None:
    path = _contract(tmp_path, publishes=[_HEARTBEAT | {"topic": "onex.node.heartbeat.publish.v1"}])
    [found] = judge_node(path, load_catalogue(), load_policy())
    line = path.read_text(encoding="utf-8").splitlines()[found.line - 1]
    assert "topic: onex.node.heartbeat.publish.v1" in line
    assert "did you mean 'onex.node.heartbeat.published.v1'?" in found.message
    with pytest.raises(ConfigurationError, match="D001"):
        read_node_contract(path, load_catalogue())


def test_topics_default_to_legacy_names_and_warn() -> None:
    with pytest.warns(UserWarning, match="does not have version suffix") as told:
        config = ModelIntrospectionConfig.default(
            load_catalogue(), node_id=uuid4(), node_type="EFFECT"
        )
    assert config.introspection_topic == "node.introspection"
    assert str(told[0].message) == (
        "Topic 'node.introspection' does not have version suffix. "
        "Consider using ONEX format: onex.<domain>.<name>.v1"
    )


def test_a_variable_chooses_the_onex_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USE_ONEX_TOPICS", "true")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        config = ModelIntrospectionConfig.default(
            load_catalogue(), node_id=_NODE, node_type="EFFECT"
        )
    assert config.heartbeat_topic == "onex.node.heartbeat.published.v1"
    assert config.request_introspection_topic == "onex.registry.introspection.requested.v1"


def test_a_contract_gives_the_topics(tmp_path: Path) -> None:
    contract = read_node_contract(
        _contract(tmp_path, publishes=[_HEARTBEAT], subscribes=[_REQUEST]), load_catalogue()
    )
    with pytest.warns(UserWarning, match=r"node\.introspection"):
        config = ModelIntrospectionConfig.from_contract(
            contract, load_catalogue(), node_id=str(_NODE)
        )
    assert (config.node_id, config.node_type, config.version) == (_NODE, "EFFECT", "1.2.0")
    assert config.heartbeat_topic == _HEARTBEAT["topic"]


@pytest.mark.parametrize(
    "fields",
    [
        {"node_type": ""},
        {"cache_ttl": -1},
        {"node_id": "x"},
        {"other": 1},
        {"heartbeat_topic": "x"},
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_wrong_configuration_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ModelIntrospectionConfig.default(
            load_catalogue(), **{"node_id": _NODE, "node_type": "EFFECT"} | fields
        )


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_configuration_does_not_change() -> None:
    config = ModelIntrospectionConfig.default(load_catalogue(), node_id=_NODE, node_type="EFFECT")
    with pytest.raises(ValidationError):
        config.cache_ttl = 1  # type: ignore[misc]
