"""The registry in memory, read from the compacted topic: every node, answered at once.

    with SnapshotCache.open(settings, snapshot_topic(settings, catalogue)) as cache:
        cache.get(entity_id)

`open` loads the whole topic and then follows it in a thread. Without a thread, `refresh` does both
when it is called. Readers always see one whole map: what has been read becomes visible in one step,
and until the first load is complete there is nothing to see.

A tombstone that compaction has taken away can't be followed any more. So the topic is read again
from its start, and everything replaced, if it was recreated or cut short, or if the cache has been
behind for longer than tombstones stay.

The canary stands in the topic, but nobody sees it here.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Event, Lock, Thread
from typing import Any, Self
from uuid import UUID

from onex_platform.base.errors import (
    ConfigurationError,
    InfraError,
    InfraTimeoutError,
    InfraUnavailableError,
)
from onex_platform.base.settings import Settings
from onex_platform.base.telemetry import get_logger
from onex_platform.domain.identity import CANARY_ID, REGISTRATION_DOMAIN
from onex_platform.domain.projection import ModelRegistrationSnapshot
from onex_platform.domain.states import EnumNodeType, EnumRegistrationState
from onex_platform.engines.kafka.topic_reader import (
    PendingSurvey,
    Survey,
    TopicChangedError,
    TopicReader,
    open_reader,
)
from onex_platform.snapshots.read.snapshot_map import (
    Draft,
    MalformedSnapshotError,
    SnapshotMap,
    Trait,
)
from onex_platform.snapshots.snapshot_records import version_in

_CANARY_KEY = str(CANARY_ID).encode()
_LOAD_ATTEMPTS = 3
_POLL_SECONDS = 0.1
_SURVEY_SECONDS = 1.0
_RETRY_SECONDS = 1.0
# Between two polls, so that somebody who waits for his turn gets it.
_BREATH_SECONDS = 0.001


@dataclass(frozen=True)
class CacheStatus:
    """What a cache knows about itself."""

    topic: str
    is_complete: bool
    entities: int
    loaded_at: datetime | None
    loads: int
    # At that moment the cache had everything that was committed; older than that it is not.
    current_as_of: datetime | None
    staleness_seconds: float | None
    # None if the broker did not say lately. Markers of transactions count.
    records_behind: int | None
    malformed: int
    last_malformed: str | None
    last_error: str | None


class SnapshotCache:
    """Answers from the snapshot topic; made by `open`, or directly by who calls `refresh`."""

    def __init__(self, settings: Settings, topic: str, domain: str = REGISTRATION_DOMAIN) -> None:
        self.topic = topic
        self._settings = settings
        self._domain = domain
        self._map: SnapshotMap | None = None
        self._topic_id: str | None = None
        self._loaded_at: datetime | None = None
        self._loads = 0
        self._as_of: float | None = None
        self._malformed = 0
        self._last_malformed: str | None = None
        self._last_error: str | None = None
        # Whoever reads from the broker has the turn; everything below is his.
        self._poll_lock = Lock()
        self._opened = ExitStack()
        self._reader: TopicReader | None = None
        self._tombstones_stay = 0.0
        self._asked: PendingSurvey | None = None
        self._ask_at = 0.0
        self._target: Survey | None = None  # the oldest survey whose ends are not reached yet
        self._latest: Survey | None = None
        self._ended = Event()
        self._follower = Thread(target=self._follow, name=f"follow {self.topic}", daemon=True)

    @classmethod
    @contextmanager
    def open(
        cls, settings: Settings, topic: str, domain: str = REGISTRATION_DOMAIN
    ) -> Iterator[Self]:
        """A loaded cache that follows its topic for the length of a block."""
        cache = cls(settings, topic, domain)
        try:
            cache.reload()
            cache._follower.start()
            yield cache
        finally:
            cache.close()

    def get(self, entity_id: UUID) -> ModelRegistrationSnapshot | None:
        return self._current().get(entity_id)

    def active(self) -> tuple[ModelRegistrationSnapshot, ...]:
        return self._having(Trait("state", EnumRegistrationState.ACTIVE))

    def by_type(self, node_type: EnumNodeType) -> tuple[ModelRegistrationSnapshot, ...]:
        return self._having(Trait("node_type", node_type))

    def by_capability(self, name: str) -> tuple[ModelRegistrationSnapshot, ...]:
        """Nodes with a flag of this name that is true, or an operation or protocol called so."""
        return self._having(Trait("capability", name))

    def get_active_nodes(self) -> list[ModelRegistrationSnapshot]:
        """`active` under the specification's name."""
        return list(self.active())

    def get_by_type(self, node_type: str) -> list[ModelRegistrationSnapshot]:
        """`by_type` under the specification's name; the type is spelled in any case."""
        try:
            return list(self.by_type(EnumNodeType(node_type)))
        except ValueError:
            raise ConfigurationError(
                f"node_type={node_type!r} is no kind of node.",
                hint=f"Ask for one of {', '.join(EnumNodeType)}.",
            ) from None

    def all(self) -> tuple[ModelRegistrationSnapshot, ...]:
        return self._current().all()

    def __len__(self) -> int:
        return len(self._current())

    def __contains__(self, entity_id: UUID) -> bool:
        return self.get(entity_id) is not None

    @property
    def is_complete(self) -> bool:
        """Whether the whole topic has been read; nothing can be asked before."""
        return self._map is not None

    def staleness(self) -> float | None:
        """Seconds since the cache was last known to have everything; None if it never had."""
        as_of = self._as_of
        return None if as_of is None else max(0.0, time.time() - as_of)

    def status(self) -> CacheStatus:
        shown, as_of, reader, latest = self._map, self._as_of, self._reader, self._latest
        faulty = {} if shown is None else dict(shown.faulty)
        return CacheStatus(
            topic=self.topic,
            is_complete=shown is not None,
            entities=0 if shown is None else len(shown),
            loaded_at=self._loaded_at,
            loads=self._loads,
            current_as_of=None if as_of is None else datetime.fromtimestamp(as_of, UTC),
            staleness_seconds=self.staleness(),
            records_behind=reader.behind(latest.ends) if reader and latest else None,
            malformed=self._malformed + len(faulty),
            last_malformed=next(reversed(faulty.values()), self._last_malformed),
            last_error=self._last_error,
        )

    def refresh(self) -> None:
        """Take in everything that is committed by now; the first time, load the topic."""
        with self._poll_lock:
            self._require_open()
            if self._reader is None:
                self._load()
                return
            try:
                self._require_continuity()
                with self._nothing_skipped():
                    self._catch_up(self._reader)
            except TopicChangedError as error:
                self._load_anew(error)

    def reload(self) -> None:
        """Read the whole topic and replace everything; until then, what was there is shown."""
        with self._poll_lock:
            self._require_open()
            self._load()

    def close(self) -> None:
        """Stop following; what was read can still be asked."""
        self._ended.set()
        if self._follower.is_alive():
            self._follower.join()
        with self._poll_lock:
            self._leave_reader()

    def _current(self) -> SnapshotMap:
        if self._map is None:
            raise InfraUnavailableError(
                f"The cache of {self.topic} has not been loaded.",
                hint="Use SnapshotCache.open, or call refresh first.",
            )
        return self._map

    def _having(self, trait: Trait) -> tuple[ModelRegistrationSnapshot, ...]:
        return self._current().having(trait)

    def _load(self) -> None:
        for attempt in range(1, _LOAD_ATTEMPTS + 1):
            try:
                self._load_once()
                return
            except TopicChangedError:
                if attempt == _LOAD_ATTEMPTS:
                    raise

    def _load_once(self) -> None:
        self._leave_reader()
        reader = self._opened.enter_context(open_reader(self._settings, self.topic))
        stay = int(reader.config()["delete.retention.ms"]) / 1000
        fold = _Fold(self._graves(reader.start.topic_id), self._domain)
        for records in reader.read_to(reader.start.ends):
            fold.add(records)
        reader.require_same(reader.survey())
        if time.time() - reader.start.asked_at > stay:
            raise InfraTimeoutError(
                f"Reading {self.topic} took longer than tombstones stay there ({stay:g} s): "
                "a removal may have been missed.",
                hint="Raise the topic's delete.retention.ms.",
            )
        self._malformed = 0
        self._show(fold)
        self._loads += 1
        self._loaded_at = datetime.now(UTC)
        self._reader, self._tombstones_stay = reader, stay
        self._topic_id = reader.start.topic_id
        self._has_all_of(reader.start)
        get_logger(__name__).info("snapshots.loaded", topic=self.topic, entities=len(self))

    def _graves(self, topic_id: str) -> SnapshotMap:
        """What is remembered beyond a load; of another topic of this name, nothing."""
        is_same = self._map is not None and topic_id == self._topic_id
        return self._map.graves() if self._map is not None and is_same else SnapshotMap()

    def _catch_up(self, reader: TopicReader) -> None:
        survey = reader.survey()
        reader.require_same(survey)
        fold = _Fold(self._current(), self._domain)
        try:
            for records in reader.read_to(survey.ends):
                fold.add(records)
        finally:
            self._show(fold)  # whatever comes next is read after it
        self._has_all_of(survey)

    def _follow(self) -> None:
        while not self._ended.wait(_BREATH_SECONDS):
            try:
                with self._poll_lock:
                    self._step()
            except Exception as error:  # the thread has nobody to raise to: its state tells
                if self._last_error != str(error):
                    get_logger(__name__).warning(
                        "snapshots.not_following", topic=self.topic, error=error
                    )
                self._last_error = str(error)
                self._ended.wait(_RETRY_SECONDS)

    def _step(self) -> None:
        if self._reader is None:
            self._load()
            return
        try:
            with self._nothing_skipped():
                records = self._reader.batch(_POLL_SECONDS)
                self._require_continuity()
                fold = _Fold(self._current(), self._domain)
                fold.add(records)
                self._show(fold)
                self._look_around(self._reader)
        except TopicChangedError as error:
            self._load_anew(error)

    @contextmanager
    def _nothing_skipped(self) -> Iterator[None]:
        """If we stop between reading and showing, as Ctrl-C may, the topic must be read anew."""
        try:
            yield
        except InfraError:  # the broker's: nothing was read
            raise
        except BaseException:
            self._leave_reader()
            raise

    def _require_continuity(self) -> None:
        """Refuse to go on if a tombstone may have come and gone since all was known."""
        behind = self.staleness()
        if behind is None or behind > self._tombstones_stay:
            raise TopicChangedError(
                f"{self.topic} was not followed for longer than tombstones stay there "
                f"({self._tombstones_stay:g} s)."
            )

    def _load_anew(self, reason: TopicChangedError) -> None:
        get_logger(__name__).warning("snapshots.read_anew", topic=self.topic, reason=reason.message)
        self._load()

    def _look_around(self, reader: TopicReader) -> None:
        """Learn from time to time where the topic ends, without waiting for the answer."""
        if self._asked is None and time.monotonic() >= self._ask_at:
            self._asked = reader.ask()
            self._ask_at = time.monotonic() + min(_SURVEY_SECONDS, self._tombstones_stay / 4)
        if self._asked is not None:
            asked, self._asked = self._asked, None
            survey = asked.result()
            if survey is None:
                self._asked = asked
            else:
                reader.require_same(survey)
                self._last_error = None
                self._latest = survey
                self._target = self._target or survey
        if self._target is not None and not reader.behind(self._target.ends):
            self._as_of = self._target.asked_at
            self._target = None if self._target is self._latest else self._latest

    def _has_all_of(self, survey: Survey) -> None:
        self._as_of = survey.asked_at
        self._latest, self._target, self._asked = survey, None, None
        self._last_error = None

    def _show(self, fold: _Fold) -> None:
        """Let readers see what was folded, all of it at once."""
        self._map = fold.draft.finished()
        if fold.malformed:
            self._malformed += fold.malformed
            self._last_malformed = fold.last_malformed
            get_logger(__name__).warning(
                "snapshots.malformed",
                topic=self.topic,
                records=fold.malformed,
                last=fold.last_malformed,
            )

    def _leave_reader(self) -> None:
        self._reader = self._asked = self._latest = self._target = None
        self._opened.close()

    def _require_open(self) -> None:
        if self._ended.is_set():
            raise InfraUnavailableError(
                f"The cache of {self.topic} has been closed.", hint="Open another one."
            )


class _Fold:
    """Records on their way into the next map; what is no snapshot is counted and left out."""

    def __init__(self, base: SnapshotMap, domain: str) -> None:
        self.draft = Draft(base, domain)
        self.malformed = 0
        self.last_malformed: str | None = None

    def add(self, records: Iterable[Any]) -> None:
        put, bury = self.draft.put, self.draft.bury  # looked up once: this is the hot loop
        for record in records:
            key, value = record.key(), record.value()
            if key == _CANARY_KEY:
                continue
            try:
                if value is None:
                    bury(key, version_in(record.headers()))
                else:
                    put(key, value)
            except MalformedSnapshotError as error:
                self.malformed += 1
                self.last_malformed = (
                    f"partition {record.partition()}, offset {record.offset()}: {error}"
                )
