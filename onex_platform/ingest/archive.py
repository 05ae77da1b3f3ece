"""The archive of one domain, opened: takes cut after cut of the input topics into the log."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from onex_platform.base.settings import Settings
from onex_platform.context import PlatformContext, open_platform
from onex_platform.domain.identity import REGISTRATION_DOMAIN
from onex_platform.engines.kafka.clients import open_consumer
from onex_platform.engines.postgres.database import Database, Fence
from onex_platform.ingest.cuts.committed_cuts import CommittedCuts, CutAccount, RivalCutError
from onex_platform.ingest.cuts.consistent_cut import (
    Cut,
    InputPartition,
    OffsetRange,
    ends_of,
    plan_cut,
    whole_tick,
)
from onex_platform.ingest.cuts.cut_job import Ingested, IngestJob, ingest, rehearse
from onex_platform.ingest.cuts.settling import settling
from onex_platform.ingest.cuts.sizing import CutSizer
from onex_platform.ingest.cuts.small_cut import read_here
from onex_platform.ingest.deduplication import recall
from onex_platform.ingest.inbox import waiting
from onex_platform.ingest.inputs import (
    input_ids,
    input_topics,
    intake_rules,
    next_offsets,
    signers_of,
)
from onex_platform.ingest.registration_pages import REGISTRATION_PAGES
from onex_platform.log.page_log import LogAddress, PageLimits, PageLog
from onex_platform.log.store import PageStore
from onex_platform.migration.present import platform_now
from onex_platform.topics.catalogue import Catalogue

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
    """The registration log with what fills it: its cuts, and how large the next one may be."""

    platform: PlatformContext
    log: PageLog
    cuts: CommittedCuts
    cut_sizer: CutSizer

    @classmethod
    def of(cls, platform: PlatformContext) -> PageArchive:
        """The platform's archive, its topics moved as far as their phases say; its log is begun,
        if that was not done before."""
        log = registration_log(platform)
        platform = platform_now(platform)
        return cls(platform, log, CommittedCuts(log), CutSizer(platform.settings.pages.cut_events))

    @property
    def settings(self) -> Settings:
        return self.platform.settings

    @property
    def domain(self) -> str:
        return self.platform.domain

    @property
    def database(self) -> Database:
        return self.platform.database

    def fenced(self, fence: Fence) -> PageArchive:
        """The same archive, for somebody whose transactions may be refused at their end."""
        log = self.log.fenced(fence)
        platform = self.platform.fenced(fence)
        return replace(self, platform=platform, log=log, cuts=CommittedCuts(log))

    def take_cut(
        self, spark: SparkSession, now: datetime, until: datetime | None = None
    ) -> TakenCut | None:
        """Take the next cut into the log, none that ends after `until`; None if there is no time
        left to close. A topic that was retired meanwhile is read no more."""
        return replace(self, platform=platform_now(self.platform))._take_cut(spark, now, until)

    def _take_cut(
        self, spark: SparkSession, now: datetime, until: datetime | None
    ) -> TakenCut | None:
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

    def close_before(self, spark: SparkSession, instant: datetime) -> int:
        """Take cuts until the log is closed up to `instant`; how many this call took.

        What is closed already is not read again, so closing the same time twice changes nothing. A
        rival that took a cut first has done a part of the work.
        """
        instant = whole_tick(instant)
        cuts = 0
        while self.cuts.head() < instant:
            try:
                taken = self.take_cut(spark, datetime.now(UTC), until=instant)
            except RivalCutError:
                continue
            if taken is None:  # the settling time is not over
                time.sleep(self.settings.pipeline.poll_seconds)
            else:
                cuts += 1
        return cuts

    def rehearse_cut(self, spark: SparkSession) -> None:
        """Take in records again that are in the log already, and drop what comes of it."""
        head = self.cuts.head()
        topics = input_topics(self.platform.catalogue)
        ranges: dict[InputPartition, OffsetRange] = {}
        with open_consumer(self.settings) as consumer:
            for place, offset in next_offsets(self.platform).items():
                if place.topic not in topics:  # it is retired
                    continue
                first = ends_of(consumer, place).start
                start = max(first, offset - _REHEARSED_RECORDS)
                if start < offset and len(ranges) < _REHEARSED_PARTITIONS:
                    ranges[place] = OffsetRange(start, offset)
        if ranges:
            cut = Cut(head - _HOUR, head, ranges, {}, {})
            rehearse(spark, self._job(cut, floor=None, whole=False), self.cuts)

    def _next_cut(self, now: datetime, until: datetime | None) -> Cut | None:
        topics = input_topics(self.platform.catalogue)
        settled = now - timedelta(seconds=settling(self.settings).seconds)
        end = settled if until is None else min(until, settled)
        ids = input_ids(self.platform)
        return plan_cut(
            self.platform.kafka.consumer(),
            topics,
            next_offsets(self.platform),
            self.cuts.head(),
            end,
            self.cut_sizer.most_records,
            ids,
            self.platform.kafka.dated_by_senders(topics.keys()) if end == settled else (),
            settled,
        )

    def _ingest(self, spark: SparkSession, cut: Cut, *, whole: bool) -> Ingested:
        with self.database.transaction() as cursor:
            inbox = waiting(cursor, self.domain, cut.instant, _FACTS_PER_CUT)
            floor = recall(cursor, self.domain).floor
        few = cut.records + len(inbox) <= self.settings.pages.events_at_hand and not whole
        at_hand = read_here(self.platform.kafka.consumer(), cut) if few else None
        return ingest(spark, self._job(cut, floor, whole=whole), self.cuts, inbox, at_hand)

    def _job(self, cut: Cut, floor: datetime | None, *, whole: bool) -> IngestJob:
        return IngestJob(
            settings=self.settings,
            domain=self.domain,
            store=self.log.store,
            batch_id=uuid4(),
            cut=cut,
            topics=input_topics(self.platform.catalogue),
            rules=intake_rules(
                self.settings, floor, signers_of(self.settings, self.platform.catalogue)
            ),
            buckets=self.log.buckets,
            # Whatever a sender dates later: no event of a cut lies behind the cut's end.
            read_at=cut.instant - _TICK,
            whole=whole,
        )


@contextmanager
def open_archive(
    settings: Settings, catalogue: Catalogue, domain: str = REGISTRATION_DOMAIN
) -> Iterator[PageArchive]:
    """The archive that the settings name, over connections of its own, for the block."""
    with open_platform(settings, catalogue, domain) as platform:
        yield PageArchive.of(platform)


def registration_log(platform: PlatformContext) -> PageLog:
    """The platform's log, begun if that was not done before."""
    settings = platform.settings
    address = LogAddress(
        settings=settings,
        domain=platform.domain,
        buckets=settings.pages.buckets,
        store=PageStore(store_url(settings)),
        layout=REGISTRATION_PAGES,
        limits=PageLimits.of(settings.pages),
    )
    log = PageLog(address, platform.database)
    log.begin()
    CommittedCuts(log).begin()
    return log


def store_url(settings: Settings) -> str:
    """Where the pages lie; unless set otherwise, in the stack's folder."""
    return settings.pages.url or str((settings.stack.folder / "pages").expanduser().resolve())
