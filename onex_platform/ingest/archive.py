"""The archive of one domain, opened: takes cut after cut of the input topics into the log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from onex_platform.base.settings import Settings
from onex_platform.domain.deadlines import Durations
from onex_platform.domain.identity import REGISTRATION_DOMAIN
from onex_platform.domain.intake import TRUSTS_NOBODY, IntakeRules, Signers
from onex_platform.engines.kafka.clients import open_consumer
from onex_platform.engines.kafka.topic_admin import KafkaSession, dated_by_senders, topic_ids
from onex_platform.engines.postgres.database import Database, Fence, open_database
from onex_platform.ingest.admission.fast_path import InputTopic
from onex_platform.ingest.cuts.committed_cuts import CommittedCuts, CutAccount
from onex_platform.ingest.cuts.consistent_cut import (
    Cut,
    InputPartition,
    OffsetRange,
    TopicIds,
    ends_of,
    plan_cut,
)
from onex_platform.ingest.cuts.cut_job import Ingested, IngestJob, ingest, rehearse
from onex_platform.ingest.cuts.sizing import CutSizer
from onex_platform.ingest.deduplication import recall
from onex_platform.ingest.inbox import waiting
from onex_platform.ingest.registration_pages import REGISTRATION_PAGES
from onex_platform.log.page_log import LogAddress, PageLimits, PageLog
from onex_platform.log.store import PageStore
from onex_platform.topics.catalogue import Catalogue, load_catalogue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FACTS_PER_CUT = 100_000
_TICK = timedelta(milliseconds=1)
_HOUR = timedelta(hours=1)
# Enough to go through all the code of a small cut.
_REHEARSED_RECORDS = 5
_REHEARSED_PARTITIONS = 3


class TakenCut(NamedTuple):
    """A cut that is part of the log now."""

    cut: Cut
    account: CutAccount


@dataclass(frozen=True, slots=True)
class PageArchive:
    """The registration log with what fills it: its cuts, and the topics that they are taken of."""

    settings: Settings
    catalogue: Catalogue
    log: PageLog
    cuts: CommittedCuts
    kafka: KafkaSession
    cut_sizer: CutSizer

    @property
    def domain(self) -> str:
        return self.log.domain

    @property
    def database(self) -> Database:
        return self.log.database

    @property
    def store(self) -> PageStore:
        return self.log.store

    @property
    def buckets(self) -> int:
        return self.log.address.buckets

    def fenced(self, fence: Fence) -> PageArchive:
        """The same archive, for somebody whose transactions may be refused at their end."""
        log = self.log.fenced(fence)
        return replace(self, log=log, cuts=CommittedCuts(log))

    def input_topics(self) -> dict[str, InputTopic]:
        """The topics that the log is made of."""
        return input_topics(self.catalogue)

    def topic_ids(self) -> TopicIds:
        """Which topics were read, and which there are now."""
        return TopicIds(
            self.cuts.read_topics(), topic_ids(self.kafka.admin(), self.input_topics().keys())
        )

    def take_cut(
        self, spark: SparkSession, now: datetime, until: datetime | None = None
    ) -> TakenCut | None:
        """Take the next cut into the log, none that ends after `until`; None if there is no time
        left to close."""
        tried = None
        while (cut := self._next_cut(now, until)) is not None:
            # Fewer records were asked for. If it ends where the last one did, that is a
            # millisecond, which can't be divided.
            whole = tried is not None and cut.instant == tried.instant
            ingested = self._ingest(spark, cut, whole=whole)
            if not whole:
                self.cut_sizer.learn(cut.records, ingested.load)
            if ingested.account is not None:
                return TakenCut(cut, ingested.account)
            tried = cut
        return None

    def rehearse_cut(self, spark: SparkSession) -> None:
        """Take in records again that are in the log already, and drop what comes of it."""
        head = self.cuts.head()
        ranges: dict[InputPartition, OffsetRange] = {}
        with open_consumer(self.settings) as consumer:
            for place, offset in self.cuts.cursors().items():
                first = ends_of(consumer, place).start
                start = max(first, offset - _REHEARSED_RECORDS)
                if start < offset and len(ranges) < _REHEARSED_PARTITIONS:
                    ranges[place] = OffsetRange(start, offset)
        if ranges:
            cut = Cut(head - _HOUR, head, ranges, {}, {})
            rehearse(spark, self._job(cut, floor=None, whole=False), self.cuts)

    def _next_cut(self, now: datetime, until: datetime | None) -> Cut | None:
        topics = self.input_topics()
        settled = now - timedelta(seconds=self.settings.pages.settle_seconds)
        end = settled if until is None else min(until, settled)
        ids = self.topic_ids()
        with open_consumer(self.settings) as consumer:
            return plan_cut(
                consumer,
                topics,
                self.cuts.cursors(),
                self.cuts.head(),
                end,
                self.cut_sizer.most_records,
                ids,
                dated_by_senders(self.kafka.admin(), topics.keys()) if end == settled else (),
                settled,
            )

    def _ingest(self, spark: SparkSession, cut: Cut, *, whole: bool) -> Ingested:
        with self.database.transaction() as cursor:
            inbox = waiting(cursor, self.domain, cut.instant, _FACTS_PER_CUT)
            floor = recall(cursor, self.domain).floor
        return ingest(spark, self._job(cut, floor, whole=whole), self.cuts, inbox)

    def _job(self, cut: Cut, floor: datetime | None, *, whole: bool) -> IngestJob:
        return IngestJob(
            settings=self.settings,
            domain=self.domain,
            store_url=self.store.url,
            batch_id=uuid4(),
            cut=cut,
            topics=self.input_topics(),
            rules=intake_rules(self.settings, floor, signers_of(self.settings, self.catalogue)),
            buckets=self.buckets,
            # Whatever a sender dates later: no event of a cut lies behind the cut's end.
            read_at=cut.instant - _TICK,
            whole=whole,
        )


@contextmanager
def open_archive(
    settings: Settings, domain: str = REGISTRATION_DOMAIN, catalogue: Catalogue | None = None
) -> Iterator[PageArchive]:
    """The archive that the settings name, for the block; its topics are the platform's, unless
    another catalogue is given."""
    catalogue = load_catalogue() if catalogue is None else catalogue
    with open_database(settings) as database, KafkaSession(settings) as kafka:
        address = LogAddress(
            settings=settings,
            domain=domain,
            buckets=settings.pages.buckets,
            store=PageStore(store_url(settings)),
            layout=REGISTRATION_PAGES,
            limits=PageLimits.of(settings.pages),
        )
        log = PageLog(address, database)
        log.begin()
        cuts = CommittedCuts(log)
        cuts.begin()
        cut_sizer = CutSizer(settings.pages.cut_events)
        yield PageArchive(settings, catalogue, log, cuts, kafka, cut_sizer)


def store_url(settings: Settings) -> str:
    """Where the pages lie; unless set otherwise, in the stack's folder."""
    return settings.pages.url or str((settings.stack.folder / "pages").expanduser().resolve())


def input_topics(catalogue: Catalogue) -> dict[str, InputTopic]:
    """The topics of the catalogue that the registration log is made of."""
    return {
        contract.topic: InputTopic(
            contract.event_kind,
            legacy=contract.legacy_of is not None,
            asked=contract.header_rules,
        )
        for contract in catalogue.registration_inputs()
        if contract.event_kind is not None
    }


def durations(settings: Settings) -> Durations:
    """The windows that are granted from now on."""
    registration = settings.registration
    return Durations(
        ack=timedelta(seconds=registration.ack_seconds),
        first_liveness=timedelta(seconds=registration.first_liveness_seconds),
        heartbeat_liveness=timedelta(seconds=registration.heartbeat_liveness_seconds),
    )


def signers_of(settings: Settings, catalogue: Catalogue) -> Signers:
    """Whose signatures the log takes; nobody's, and no key is read, if no input is signed."""
    if not any(contract.signed for contract in catalogue.registration_inputs()):
        return TRUSTS_NOBODY
    # Tink takes a while to load, and few logs need it.
    from onex_platform.records.signing import trusted_signers

    return trusted_signers(settings)


def intake_rules(
    settings: Settings, ledger_floor: datetime | None, signers: Signers = TRUSTS_NOBODY
) -> IntakeRules:
    return IntakeRules(
        default_tenant=settings.tenant,
        durations=durations(settings),
        max_event_bytes=settings.registration.max_event_bytes,
        ledger_floor=ledger_floor,
        signers=signers,
    )
