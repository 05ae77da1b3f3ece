"""Keys never leave their prefix, never collide, and fit the format."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onex_platform.base.errors import ConfigurationError
from onex_platform.capture.captured_events import PageInfo, WriterRange
from onex_platform.capture.flush.keys import KeyTemplate, path_segment

_SEGMENT = re.compile(r"[A-Za-z0-9%._\-]{1,120}")
_NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=256)


def _info(writer_id: str = "user-123", tenant: str = "default") -> PageInfo:
    span = WriterRange(writer_id, 1, 2, 0, 1, 2)
    return PageInfo(
        page_id="abc",
        tenant=tenant,
        writers=(span,),
        page_sequence=42,
        start_time_us=1_696_800_000_000_000,
        end_time_us=1_696_800_300_000_000,
        event_count=2,
        format="protobuf",
        compression="gzip",
        reason="age",
    )


def test_001s_template_gives_its_key_and_an_id_that_makes_it_unique() -> None:
    template = KeyTemplate(
        "snapshots/{year}/{month}/{day}/{writer_id}/{timestamp}_{sequence}.pb.gz", "pb.gz"
    )
    assert template.key(_info()) == "snapshots/2023/10/08/user-123/1696800000000000_42-abc.pb.gz"


@given(_NAMES, _NAMES)
def test_any_writer_and_tenant_stay_one_segment_each(writer_id: str, tenant: str) -> None:
    key = KeyTemplate("pages/{tenant}/{writer_id}/{page_id}", "pb").key(_info(writer_id, tenant))
    parts = key.split("/")
    assert len(parts) == 4
    assert all(_SEGMENT.fullmatch(part) and part.strip(".") for part in parts)


@given(_NAMES, _NAMES)
def test_different_names_are_different_segments(one: str, other: str) -> None:
    assert (path_segment(one) == path_segment(other)) == (one == other)


def test_shared_pages_and_foreign_tenants_have_places_of_their_own() -> None:
    template = KeyTemplate("{writer_id}/{page_id}", "pb")
    two = replace(_info(), writers=_info("a").writers + _info("b").writers)
    assert template.key(two) == "_shared/abc.pb"
    assert template.key(_info("_shared")) == "%5Fshared/abc.pb"
    assert template.key(_info("a", "acme")) == "acme/a/abc.pb"


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("../../x", "lead out"),
        ("/absolute/{page_id}", "lead out"),
        ("a//b", "lead out"),
        ("{writer_id}/../x", "lead out"),
        ("{user}", "{user} is not one of"),
        ("{writer_id.__class__}", "is not one of"),
        ("{sequence:>10}", "not formatted"),
        ("{sequence", "expected '}'"),
        ("{sequence}.ndjson", "it says .ndjson, and the pages are .pb.gz"),
        ("{sequence}.pb", "it says .pb, and the pages are .pb.gz"),
    ],
)
def test_a_template_that_escapes_or_contradicts_is_refused(template: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(words)):
        KeyTemplate(template, "pb.gz")
