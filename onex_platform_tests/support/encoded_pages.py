"""Pages as bytes, in no store."""

from __future__ import annotations

from uuid import uuid4

from onex_platform.domain.events import LogEvent
from onex_platform.ingest.event_schema import bucket_of, to_table
from onex_platform.ingest.registration_pages import REGISTRATION_PAGES, EnumPageReason
from onex_platform.log.page_format import EncodedPage, PageWriter
from onex_platform_tests.support.events import START

BUCKETS = 4


def page_of(log: list[LogEvent]) -> EncodedPage:
    writer = PageWriter(REGISTRATION_PAGES)
    for bucket in range(BUCKETS):
        part = [e for e in log if bucket_of(e.entity.entity_id.bytes, BUCKETS) == bucket]
        if part:
            writer.add(bucket, to_table(part))
    return writer.finish(
        page_id=uuid4(),
        domain="registration",
        writer_id="ingest",
        reason=EnumPageReason.INGEST,
        buckets=BUCKETS,
        period=START,
    )
