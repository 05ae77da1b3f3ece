"""Names and folders lead to each other, in every dialect."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onex_platform.base.errors import ConfigurationError
from onex_platform.topics.contract_folders import folder_of, name_at
from onex_platform.topics.grammar import (
    STREAM_CLASSES,
    LegacyName,
    LogicalName,
    OnexName,
    SnapshotName,
    StreamName,
    parse_logical,
)

_DOMAINS = {"node": None, "infra": None, "registry": {"node", "work_flow"}}
_SNAKE = st.from_regex(r"[a-z][a-z0-9]{0,5}(_[a-z0-9]{1,5}){0,2}", fullmatch=True)
_KEBAB = st.from_regex(r"[a-z0-9]{1,5}(-[a-z0-9]{1,5}){0,2}", fullmatch=True)
_NAMES = st.one_of(
    st.builds(
        OnexName,
        st.sampled_from(["node", "infra", "registry", "other"]),
        _SNAKE | st.sampled_from(["node", "work_flow"]),
        _SNAKE,
        st.integers(1, 20),
    ),
    st.builds(
        StreamName,
        _KEBAB | st.sampled_from(["registry", "node", "onex"]),
        st.sampled_from(STREAM_CLASSES),
        _KEBAB | st.sampled_from(["node-moved", "asset-registered"]),
        st.integers(1, 20),
    ),
    st.builds(SnapshotName, _KEBAB, _KEBAB, st.integers(1, 20)),
    st.builds(LegacyName, _SNAKE),
)


def _is_onex(domain: str, entity: str) -> bool:
    entities = _DOMAINS.get(domain, set())
    return entities is None or entity in entities


def _is_another_dialect_s(name: LogicalName) -> bool:
    """Whether the table of keys gives the name's events to the other of the two dialects."""
    if isinstance(name, OnexName):
        return not _is_onex(name.domain, name.entity)
    if isinstance(name, StreamName) and name.stream_class == "evt":
        return _is_onex(name.context, name.topic.split("-")[0])
    return False


@given(_NAMES)
def test_every_name_has_a_folder_that_means_only_it(name: LogicalName) -> None:
    if _is_another_dialect_s(name):
        with pytest.raises(ConfigurationError):
            folder_of(name, _is_onex)
        return
    folder = folder_of(name, _is_onex)
    assert len(folder.parts) == 4
    assert name_at(folder, _is_onex) == name


@given(
    st.tuples(
        st.sampled_from(["node", "infra", "registry", "onex", "kb"]),
        st.sampled_from(["evt", "cmd", "snapshot", "legacy", "topics"]),
        st.from_regex(r"[a-z0-9_-]{1,12}", fullmatch=True) | st.just("node-moved"),
        st.sampled_from(["v0", "v1", "v12", "v01", "1"]),
    )
)
def test_every_folder_is_refused_or_is_where_its_name_leads(parts: tuple[str, ...]) -> None:
    folder = PurePosixPath(*parts)
    try:
        name = name_at(folder, _is_onex)
    except ConfigurationError:
        return
    assert folder_of(name, _is_onex) == folder


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("onex.registry.node.registered.v1", "registry/evt/node-registered/v1"),
        ("onex.registry.node.ack_timed_out.v2", "registry/evt/node-ack_timed_out/v2"),
        ("registry.evt.asset-registered.v1", "registry/evt/asset-registered/v1"),
        ("kb.qrs.search-requests.v1", "kb/qrs/search-requests/v1"),
        (
            "onex.snapshot.platform.registration-snapshots.v1",
            "platform/snapshot/registration-snapshots/v1",
        ),
        ("node.heartbeat", "node/legacy/heartbeat/v0"),
    ],
)
def test_a_folder_for_each_dialect(name: str, folder: str) -> None:
    assert str(folder_of(parse_logical(name), _is_onex)) == folder
    assert str(name_at(PurePosixPath(folder), _is_onex)) == name


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("registry.evt.node-moved.v1", "an entity of the onex dialect"),
        ("onex.registry.asset.registered.v1", "no keying rule covers"),
    ],
)
def test_a_name_that_another_dialect_owns_has_no_folder(name: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        folder_of(parse_logical(name), _is_onex)
