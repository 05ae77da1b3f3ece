"""Page formats as a schema registry knows them: a subject per format, and the mode that they need.

A page is kept for ever, so every release must read what all earlier ones wrote: that is the mode
BACKWARD_TRANSITIVE. Schemas of what we write are closed; in an open one a new field would break
what somebody might have written there.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import NamedTuple

from onex_platform.capture.codecs import MERGED_FORMAT
from onex_platform.capture.codecs.ndjson import line_schema
from onex_platform.capture.codecs.parquet import row_schema

MODE = "BACKWARD_TRANSITIVE"
# Modes that promise no less: an operator may have chosen them.
STRICT_MODES = {MODE, "FULL_TRANSITIVE"}

_DRAFT = "http://json-schema.org/draft-07/schema#"


class PageSchema(NamedTuple):
    """A page format in the registry's words."""

    subject: str
    language: str
    text: str


def page_schema(subject: str, page_format: str) -> PageSchema:
    """The schema of a format: 001's message, a line of NDJSON, a row of Parquet."""
    subject = f"{subject}-{page_format}"
    if page_format == "ndjson":
        return PageSchema(subject, "JSON", _compact({"$schema": _DRAFT} | line_schema()))
    if page_format == "parquet":
        return PageSchema(subject, "AVRO", _compact(row_schema()))
    proto = files("onex_platform.capture") / "proto" / "page.proto"
    return PageSchema(subject, "PROTOBUF", proto.read_text(encoding="utf-8"))


def archive_schemas(subject: str, page_format: str) -> list[PageSchema]:
    """The schemas of all pages that an archive gets: its snapshotter's, and merged ones."""
    return [page_schema(subject, name) for name in sorted({page_format, MERGED_FORMAT[0]})]


def _compact(document: object) -> str:
    return json.dumps(document, separators=(",", ":"))
