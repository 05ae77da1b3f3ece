"""What a Spark task tells the driver: the pages that it wrote and the rows that it staged."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pyarrow as pa

from onex_platform.engines.postgres.staging import RowCounts
from onex_platform.log.page_format import EncodedPage
from onex_platform.log.page_layout import PageLayout
from onex_platform.log.store import PageStore, StoredPage

PAGE_FIELDS = (
    pa.field("page", pa.string()),  # null: a report without a page
    pa.field("key", pa.string()),
    pa.field("encoded_bytes", pa.int64(), nullable=False),
    pa.field("checksum", pa.string()),
)


def staged_fields(tables: Iterable[str]) -> list[pa.Field]:
    """Fields that say how many rows a task staged in each table."""
    return [pa.field(table, pa.int64(), nullable=False) for table in tables]


def staged_rows(reports: Collection[Any], tables: Iterable[str]) -> RowCounts:
    """How many rows all tasks staged in each table."""
    return {table: sum(report[table] for report in reports) for table in tables}


def store_page(store: PageStore, page: EncodedPage) -> dict[str, Any]:
    """Store a page, and what to report of it."""
    stored = store.create_page(page)
    return {
        "page": stored.metadata.model_dump_json(),
        "key": stored.key,
        "encoded_bytes": stored.encoded_bytes,
        "checksum": stored.checksum,
    }


def reported_pages(layout: PageLayout, reports: Iterable[Any]) -> list[StoredPage]:
    """The pages that tasks reported."""
    return [
        StoredPage(
            layout.metadata.model_validate_json(report.page),
            report.key,
            report.encoded_bytes,
            report.checksum,
        )
        for report in reports
        if report.page is not None
    ]
