"""The first upcaster is safe: pages hold each payload in the version that it was written in, and
readers get the newest one."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onex_platform.domain.envelope import (
    PAYLOADS,
    EnumParkReason,
    Unreadable,
    UpcasterRegistry,
    kept_payload,
    kept_text,
    parse_payload,
    read_kept,
)
from onex_platform.domain.events import EnumEventKind, LogEvent
from onex_platform.domain.identity import REGISTRATION_DOMAIN
from onex_platform.domain.intake import admit
from onex_platform.domain.payloads import NodePayload
from onex_platform.domain.reference.plain_fold import replay
from onex_platform.ingest.event_schema import to_events, to_table
from onex_platform_tests.support.events import NODE, RULES, at, number_id, payload_fields, record

Kind = EnumEventKind
TODAY = UpcasterRegistry()
OF_NODES = [kind for kind, model in PAYLOADS.items() if issubclass(model, NodePayload)]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)


def tomorrow(versions: int = 2, kind: Kind = Kind.NODE_INTROSPECTION) -> UpcasterRegistry:
    """A release that has learnt to count: each version adds one to a number, so that a payload
    which is lifted twice shows it."""
    registry = UpcasterRegistry()
    for version in range(1, versions):
        registry.register(kind, version, _lifted)
    return registry


def _lifted(payload: dict[str, Any]) -> dict[str, Any]:
    metadata = payload.get("metadata") or {}
    return payload | {"metadata": metadata | {"lifts": metadata.get("lifts", 0) + 1}}


def introduced(offset: int, registry: UpcasterRegistry, version: int = 1) -> LogEvent:
    raw = record(
        Kind.NODE_INTROSPECTION,
        offset=offset,
        envelope={"schema_version": version, "event_id": str(number_id(offset))},
    )
    event = admit(raw, replace(RULES, upcasters=registry), at(offset))
    assert isinstance(event, LogEvent), event
    return event


def lifts(event: LogEvent) -> int:
    return int(event.payload.model_dump()["metadata"].get("lifts", 0))


def test_pages_of_several_releases_are_read_as_one_log() -> None:
    second, third = tomorrow(), tomorrow(3)
    pages = [
        to_table([introduced(1, TODAY)], TODAY),
        to_table([introduced(2, second)], second),
        to_table([introduced(3, second, version=2)], second),
    ]
    # Compaction puts pages together as they are.
    merged = pa.concat_tables(pages)
    assert [lifts(e) for e in to_events(merged, REGISTRATION_DOMAIN, second)] == [1, 1, 0]
    assert [lifts(e) for e in to_events(merged, REGISTRATION_DOMAIN, third)] == [2, 2, 1]


def test_events_of_both_releases_fold_to_the_same_rows_live_and_replayed() -> None:
    release = tomorrow()
    before, after = [introduced(1, TODAY)], [introduced(2, release)]
    page = pa.concat_tables([to_table(before, TODAY), to_table(after, release)])
    # What the fold sees live: each event as it was read by the release that archived it.
    numbered = [replace(e, position=n) for n, e in enumerate([*before, *after], 1)]
    replayed = [
        replace(e, position=n)
        for n, e in enumerate(to_events(page, REGISTRATION_DOMAIN, release), 1)
    ]
    [live], [again] = replay(numbered).values(), replay(replayed).values()
    assert again == live
    assert again.metadata["lifts"] == 1


def test_a_page_of_a_later_release_is_refused_and_never_misread() -> None:
    page = to_table([introduced(1, tomorrow(3))], tomorrow(3))
    for registry in (TODAY, tomorrow()):
        with pytest.raises(Unreadable, match="schema_version 3") as refusal:
            list(to_events(page, REGISTRATION_DOMAIN, registry))
        assert refusal.value.reason is EnumParkReason.UNKNOWN_VERSION


@given(
    kind=st.sampled_from(OF_NODES),
    extra=st.dictionaries(st.sampled_from(["$version", "payload", "more"]), JSON),
    versions=st.integers(min_value=1, max_value=3),
)
def test_whatever_a_sender_adds_a_payload_is_kept_and_read_as_it_was(
    kind: Kind, extra: dict[str, Any], versions: int
) -> None:
    registry = UpcasterRegistry()
    for version in range(1, versions):
        registry.register(kind, version, lambda payload: payload | {"lifted": True})
    fields = payload_fields(kind, str(NODE)) | extra
    payload = parse_payload(kind, fields, versions, registry)
    text = kept_text(kind, payload, registry)
    document = json.loads(json.dumps(kept_payload(kind, payload, registry), default=_plain))
    assert read_kept(kind, text, registry) == payload
    assert read_kept(kind, document, registry) == payload


@pytest.mark.parametrize("kind", list(PAYLOADS))
def test_every_payload_has_a_field_that_must_be_there(kind: Kind) -> None:
    """So no payload of the first version looks like one that says its version."""
    assert any(field.is_required() for field in PAYLOADS[kind].model_fields.values())


def _plain(payload: Any) -> Any:
    return payload.model_dump(mode="json")
