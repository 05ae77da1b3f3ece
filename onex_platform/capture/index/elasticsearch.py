"""The index in Elasticsearch or OpenSearch, by 001's `document_query`.

Both speak the same REST for what is needed here, and the client library of each refuses the
other's server: so it is spoken directly. A document says everything of a page, also which pages it
replaces, and is written as a whole; whoever reads hides the replaced ones. That works within one
search, because a merged page lies wherever the pages that it replaces lie, and has their writers. A
scroll reads as of one moment. A page is forgotten by a mark in its document.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import httpx
import msgspec

from onex_platform.base.errors import (
    ConfigurationError,
    InfraConnectionError,
    InfraError,
    InfraTimeoutError,
)
from onex_platform.capture.captured_events import PageEntry
from onex_platform.capture.flush.page_json import entry_from_json, entry_to_json
from onex_platform.capture.index.matching import in_order, matches, replaced_ones, unreplaced
from onex_platform.capture.slots import PageQuery

_HINT = "Check index.config.connection of the snapshotter."
_TIMEOUT_SECONDS = 30.0
_AT_ONCE = 1000
_NAME = re.compile(r"[a-z0-9][a-z0-9_.\-]{0,200}")
_TOO_BUSY = (429, 502, 503, 504)
_MAPPING = {
    "mappings": {
        "dynamic": False,
        "properties": {
            "tenant": {"type": "keyword"},
            "writer_ids": {"type": "keyword"},
            "start_time": {"type": "long"},
            "end_time": {"type": "long"},
            "expires_at": {"type": "double"},
            "page_key": {"type": "keyword"},
            "format": {"type": "keyword"},
            "compression": {"type": "keyword"},
        },
    }
}


class ElasticsearchIndex:
    """Entries as documents of one index, which is made when it is not there."""

    backend = "elasticsearch"

    def __init__(
        self,
        connection: str,
        *,
        index: str = "event-snapshots",
        ttl_seconds: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not _NAME.fullmatch(index):
            raise ConfigurationError(
                f"index.config.index {index!r} can't be used.",
                hint="Lower case letters, digits, dots, underscores and dashes.",
            )
        self._index = index
        self._ttl = ttl_seconds
        self._clock = clock
        self._http = httpx.Client(base_url=connection, timeout=_TIMEOUT_SECONDS)
        if self._ask("HEAD", f"/{index}", may_be_missing=True) is None:
            self._ask("PUT", f"/{index}", _MAPPING, may_exist=True)

    def publish(self, entries: Sequence[PageEntry]) -> None:
        """A document that is there already only loses its mark, if it had been forgotten."""
        self._drop_expired()
        expires = None if self._ttl is None else self._clock() + self._ttl
        self._bulk(
            [
                ({"update": {"_id": entry.info.page_id}}, _upsert(entry, expires))
                for entry in entries
            ]
        )

    def replace(self, entry: PageEntry) -> None:
        self.publish([entry])

    def query(self, query: PageQuery) -> Iterator[PageEntry]:
        rows = self._scroll(_filter_of(query))
        return iter(in_order(one for one in unreplaced(rows) if matches(query, one.info)))

    def forget(self, page_ids: Sequence[str]) -> int:
        rows = self._scroll([{"ids": {"values": list(page_ids)}}])
        known = [entry.info.page_id for entry, forgotten in rows if not forgotten]
        self._bulk(
            [({"update": {"_id": page_id}}, {"doc": {"forgotten": True}}) for page_id in known]
        )
        return len(known)

    def replaced(self, tenant: str) -> Iterator[PageEntry]:
        return iter(in_order(replaced_ones(self._scroll(_filter_of(PageQuery(tenant))))))

    def count(self) -> int:
        return len(unreplaced(self._scroll([])))

    def check(self) -> None:
        self._ask("GET", f"/{self._index}/_count")

    def close(self) -> None:
        self._http.close()

    def _scroll(self, filters: list[dict[str, Any]]) -> list[tuple[PageEntry, bool]]:
        """All documents that pass the filters, as of one moment."""
        expired = {"range": {"expires_at": {"lte": self._clock()}}}
        body = {
            "size": _AT_ONCE,
            "sort": ["_doc"],
            "query": {"bool": {"filter": filters, "must_not": [expired]}},
        }
        found = self._ask("POST", f"/{self._index}/_search?scroll=1m", body)
        rows = []
        while hits := found["hits"]["hits"]:
            rows += [
                (entry_from_json(hit["_source"]), bool(hit["_source"].get("forgotten")))
                for hit in hits
            ]
            body = {"scroll": "1m", "scroll_id": found["_scroll_id"]}
            found = self._ask("POST", "/_search/scroll", body)
        self._ask("DELETE", "/_search/scroll", {"scroll_id": [found["_scroll_id"]]})
        return rows

    def _drop_expired(self) -> None:
        if self._ttl is not None:
            expired = {"query": {"range": {"expires_at": {"lte": self._clock()}}}}
            self._ask("POST", f"/{self._index}/_delete_by_query?conflicts=proceed", expired)

    def _bulk(self, actions: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> None:
        """Write documents and wait until searches find them; the answer is 200 even if some were
        refused."""
        for start in range(0, len(actions), _AT_ONCE):
            lines = [line for pair in actions[start : start + _AT_ONCE] for line in pair]
            path = f"/{self._index}/_bulk?refresh=wait_for"
            answer = self._ask("POST", path, msgspec.json.Encoder().encode_lines(lines))
            for item in answer["items"]:
                error = item["update"].get("error")
                if error is not None:
                    raise InfraConnectionError(
                        f"The search index {self._index} refused a page: {error['reason']}.",
                        hint="It is published again.",
                    )

    def _ask(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | bytes | None = None,
        *,
        may_be_missing: bool = False,
        may_exist: bool = False,
    ) -> Any:
        content = body if isinstance(body, bytes | None) else msgspec.json.encode(body)
        kind = "application/x-ndjson" if isinstance(body, bytes) else "application/json"
        try:
            answer = self._http.request(
                method, path, content=content, headers={"Content-Type": kind}
            )
        except httpx.TimeoutException as error:
            raise InfraTimeoutError(
                f"The search server did not answer in time: {error!r}.", hint=_HINT
            ) from error
        except httpx.HTTPError as error:
            raise InfraConnectionError(
                f"The search server can't be reached: {error!r}.", hint=_HINT
            ) from error
        if answer.status_code == httpx.codes.NOT_FOUND and may_be_missing:
            return None
        if answer.is_success or ("resource_already_exists" in answer.text and may_exist):
            return msgspec.json.decode(answer.content or b"{}")
        kind_of_error = InfraConnectionError if answer.status_code in _TOO_BUSY else InfraError
        raise kind_of_error(
            f"The search server answered {answer.status_code}: {answer.text[:300]}.", hint=_HINT
        )


def _upsert(entry: PageEntry, expires: float | None) -> dict[str, Any]:
    about: dict[str, Any] = entry_to_json(entry) | {
        "writer_ids": [span.writer_id for span in entry.info.writers],
        "forgotten": False,
    }
    if expires is not None:
        about["expires_at"] = expires
    return {"doc": {"forgotten": False}, "upsert": about}


def _filter_of(query: PageQuery) -> list[dict[str, Any]]:
    filters: list[dict[str, Any]] = [{"term": {"tenant": query.tenant}}]
    if query.writer_id is not None:
        filters.append({"term": {"writer_ids": query.writer_id}})
    if query.until_us is not None:
        filters.append({"range": {"start_time": {"lt": query.until_us}}})
    if query.from_us is not None:
        filters.append({"range": {"end_time": {"gte": query.from_us}}})
    return filters
