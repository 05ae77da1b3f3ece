"""The pages of the registration log: what the shared log is told about them.

A bucket's rows lie in two lanes: the events that may change a state, and the heartbeats, of which a
fold needs a few columns. Each lane is sorted by entity and position.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import model_validator

from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.order import POSITION_STRIDE, moment_of
from onex_platform.ingest.event_schema import BEAT_COLUMNS, LOG_SCHEMA, SCHEMA_VERSION
from onex_platform.log.page_layout import PageLayout, PageMetadata
from onex_platform.log.page_table import PageEntry
from onex_platform.log.replay import PageRef, read_lanes
from onex_platform.log.store import PageStore

CHANGES, BEATS = 0, 1
_DECIDED = "decided"  # facts of the registry's own policy among the events


class EnumPageReason(StrEnum):
    """Why a page was written."""

    INGEST = "ingest"  # a cut of the input topics
    DECISION = "decision"  # facts of the registry's own policy
    COMPACTION = "compaction"  # smaller pages merged


class RegistrationPage(PageMetadata):
    """What is known of a page of the registration log."""

    reason: EnumPageReason
    schema_version: int = SCHEMA_VERSION

    @model_validator(mode="before")
    @classmethod
    def _count_decided(cls, fields: Any) -> Any:
        """Pages from before the log was shared have a field where there is a counter now."""
        if isinstance(fields, dict) and _DECIDED in fields:
            fields = dict(fields)
            fields["counters"] = {_DECIDED: fields.pop(_DECIDED)}
        return fields


class LogChunk(NamedTuple):
    """A part of one bucket's log: the events that may change a state, and the heartbeats."""

    changes: pa.Table
    beats: pa.Table


def read_chunk(
    store: PageStore,
    pages: list[PageRef],
    bucket: int | None,
    start: int,
    end: int,
    *,
    beat_columns: Sequence[str] = BEAT_COLUMNS,
) -> LogChunk:
    """One bucket's events (of all if None) at positions from `start` on and below `end`.

    Heartbeats come with what folding them needs, unless more columns are asked for.
    """
    columns = (None, beat_columns)
    return LogChunk(*read_lanes(REGISTRATION_PAGES, store, pages, bucket, start, end, columns))


def entered(page: PageEntry) -> int:
    """How many events of a page came in with cuts; the others were decided."""
    return page.event_count - page.counters.get(_DECIDED, 0)


def _lanes(events: pa.Table) -> Sequence[pa.Table]:
    is_beat = pc.equal(events["kind"], EnumEventKind.NODE_HEARTBEAT.value)
    return [events.filter(pc.invert(is_beat)), events.filter(is_beat)]


def _counters(events: pa.Table) -> Mapping[str, int]:
    """What was decided stands between the positions that cuts give."""
    between = pc.bit_wise_and(events["position"], POSITION_STRIDE - 1)
    return {_DECIDED: pc.sum(pc.not_equal(between, 0)).as_py()}


REGISTRATION_PAGES = PageLayout(
    schema=LOG_SCHEMA,
    sort_by=("entity_id", "position"),
    moment_of=moment_of,
    metadata=RegistrationPage,
    merge_reason=EnumPageReason.COMPACTION,
    lanes=_lanes,
    counters=_counters,
    dictionary_columns=("kind", "tenant", "node_id", "topic", "entity_id"),
    statistics_columns=("entity_id", "position", "occurred_at"),
)
