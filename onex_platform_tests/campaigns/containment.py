"""Whatever the log admits can be folded and decided: mutated records, by rows and by columns.

    python -m onex_platform_tests.campaigns.containment --records 1000000 --seed 7

Each batch is admitted, numbered, folded and decided twice: record by record, as the domain says it,
and by columns, as the pipeline does it. Nothing may raise, both must agree, what was decided must
be let in again when it comes back, and the log must replay to the same rows. The seed makes a
failure reproducible; the command names it with the batch.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple
from unittest import mock
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from onex_platform.domain.batch import Decider
from onex_platform.domain.decider import RegistrationPolicy
from onex_platform.domain.events import EnumEventKind, LogEvent
from onex_platform.domain.identity import REGISTRATION_DOMAIN, EntityKey
from onex_platform.domain.intake import Parked, RawRecord, admit, is_ledgered
from onex_platform.domain.machine import STEP_OUTCOMES
from onex_platform.domain.projection import ModelRegistrationProjection
from onex_platform.domain.reference.log_order import mark_duplicates, number
from onex_platform.domain.reference.plain_fold import BatchFold, fold_batch
from onex_platform.domain.states import EnumNodeType
from onex_platform.ingest.admission.admit import Admitted, admit_records, dated, raw_records
from onex_platform.ingest.event_schema import BEAT_COLUMNS, CAUSE_COLUMNS, to_events, to_table
from onex_platform.ingest.numbering import enter_log
from onex_platform.projections.fold import alike
from onex_platform.projections.fold.column_fold import BucketFold
from onex_platform.projections.fold.row_columns import to_table as to_state_table
from onex_platform.projections.write.outbox import envelope_of, fact_table
from onex_platform_tests.campaigns.mutants import TOPICS, Mutants, moments
from onex_platform_tests.support.events import RULES, START

Kind = EnumEventKind

POLICY = RegistrationPolicy(
    versions=">=1.0", required_capabilities={EnumNodeType.EFFECT: frozenset({"read"})}
)
_TOPIC_OF = {topic.kind: name for name, topic in TOPICS.items() if not topic.legacy}


class Fed(NamedTuple):
    """What became of one batch: by rows and by columns, and where in the log it stands."""

    since: datetime
    until: datetime
    entered: Admitted
    reference: BatchFold
    fold: BucketFold

    @property
    def published(self) -> pa.Table:
        """The facts that wait for Kafka."""
        return pa.concat_tables([self.fold.fact_table(), fact_table(self.fold.announced)])


@dataclass
class Campaign:
    """A registry in memory that is fed mutants, batch by batch."""

    seed: int
    rows: dict[EntityKey, ModelRegistrationProjection] = field(default_factory=dict)
    ledger: set[UUID] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)

    def run(self, records: int, batch: int = 1000) -> Iterator[Fed]:
        """Feed so many; raises at the first batch on which the two ways differ."""
        mutants = Mutants(self.seed)
        for since, until in pairwise(moments(START)):
            if self.counts["records"] >= records:
                return
            size = min(batch, records - self.counts["records"])
            try:
                yield self._batch(mutants.batch(size, since, until), since, until)
            except Exception as error:
                place = f"seed {self.seed}, batch {self.counts['batches']} of {batch}"
                raise AssertionError(f"{place}: {type(error).__name__}: {error}") from error

    def _batch(self, records: pa.Table, since: datetime, until: datetime) -> Fed:
        now = until + timedelta(seconds=1)
        decider = Decider(policy=POLICY, now=now, known_facts=frozenset(self.ledger))
        judged, parked = self._admitted_by_rows(records, since, until)
        entered = self._admitted_by_columns(records, since, until, judged, parked)
        reference = fold_batch(self.rows, judged, decider)
        fold = self._folded(entered.events, decider)
        self._require_same(reference, fold)
        self._require_returnable(reference.facts)
        replayed = self._folded(to_table(reference.log), None)
        assert {c.row.key: c.row for c in replayed.changes()} == {
            key: change.row for key, change in reference.changes.items()
        }
        self.rows |= {key: change.row for key, change in reference.changes.items()}
        self.ledger |= {e.event_id for e in reference.log if is_ledgered(e.kind)}
        self.counts += Counter({outcome.value: n for outcome, n in reference.outcomes.items()})
        self.counts += Counter(
            records=len(records), batches=1, unread=len(parked), facts=len(reference.facts)
        )
        return Fed(since, until, entered, reference, fold)

    def _admitted_by_rows(
        self, records: pa.Table, since: datetime, until: datetime
    ) -> tuple[list[LogEvent], list[Parked]]:
        admitted = [admit(raw, RULES, until) for raw in raw_records(dated(records), TOPICS)]
        entering = [item for item in admitted if isinstance(item, LogEvent)]
        parked = [item for item in admitted if isinstance(item, Parked)]
        judged = list(mark_duplicates(number(entering, since, until), self.ledger))
        return judged, parked

    def _admitted_by_columns(
        self,
        records: pa.Table,
        since: datetime,
        until: datetime,
        judged: list[LogEvent],
        parked: list[Parked],
    ) -> Admitted:
        admitted = admit_records(records, TOPICS, RULES, until)
        assert sorted(admitted.parked["offset"].to_pylist()) == sorted(
            item.record.offset for item in parked
        )
        known = {item.bytes for item in self.ledger}
        entered = enter_log(admitted.events, since, until, lambda ids: known & set(ids))
        same = sorted(judged, key=lambda event: (event.entity.entity_id.bytes, event.position))
        assert repr(list(to_events(entered, REGISTRATION_DOMAIN))) == repr(same)
        return Admitted(entered, admitted.parked, admitted.findings)

    def _folded(self, events: pa.Table, decider: Decider | None) -> BucketFold:
        fold = BucketFold(REGISTRATION_DOMAIN, (), decider, live=True)
        fold.meet_columns(to_state_table(self.rows.values()))
        beats = pc.equal(events["kind"], Kind.NODE_HEARTBEAT.value)
        columns = [*BEAT_COLUMNS, *CAUSE_COLUMNS]
        with mock.patch.object(alike, "WORTHWHILE", 1):
            fold.feed(events.filter(pc.invert(beats)), events.filter(beats).select(columns))
        assert fold.table() == to_state_table(fold.rows())
        return fold

    def _require_same(self, one: BatchFold, other: BucketFold) -> None:
        # Whether the liveness moved and came back within a batch, the columns need not say.
        changes = {change.row.key: change for change in other.changes()}
        assert {key: (c.row, c.wide) for key, c in changes.items()} == {
            key: (c.row, c.wide) for key, c in one.changes.items()
        }
        assert all(one.changes[key].liveness for key, c in changes.items() if c.liveness)
        assert sorted(to_events(other.fact_table(), REGISTRATION_DOMAIN), key=_place) == sorted(
            one.facts, key=_place
        )
        assert sorted(other.announced, key=_place) == sorted(one.announced, key=_place)
        assert other.outcomes == one.outcomes
        refusals = Counter((r.event.entity.entity_id.bytes, r.outcome) for r in one.refusals)
        runs: Counter[object] = Counter()
        for refused in other.refused:
            runs[refused.event["entity_id"], STEP_OUTCOMES[refused.verdict].outcome] += (
                refused.times
            )
        assert runs == refusals

    def _require_returnable(self, facts: list[LogEvent]) -> None:
        """What was decided is archived as it is, and is known when it comes back from Kafka."""
        assert list(to_events(to_table(facts), REGISTRATION_DOMAIN)) == facts
        for fact in facts:
            record = RawRecord(
                topic=_TOPIC_OF[fact.kind],
                partition=0,
                offset=0,
                timestamp=fact.occurred_at,
                append_time=True,
                key=None,
                value=envelope_of(fact).model_dump_json().encode(),
                kind=fact.kind,
            )
            returned = admit(record, RULES, fact.occurred_at)
            assert isinstance(returned, LogEvent), returned
            assert (returned.event_id, returned.payload) == (fact.event_id, fact.payload)


def _place(event: LogEvent) -> tuple[UUID, int]:
    return event.entity.entity_id, event.position


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batch", type=int, default=1000)
    asked = parser.parse_args()
    campaign, began, told = Campaign(asked.seed), time.monotonic(), 0.0
    for _ in campaign.run(asked.records, asked.batch):
        spent = time.monotonic() - began
        if spent - told > 5:
            told = spent
            done = campaign.counts["records"]
            sys.stderr.write(f"{done} of {asked.records} records, {done / spent:.0f} a second\n")
    numbers = ", ".join(f"{count} {name}" for name, count in sorted(campaign.counts.items()))
    sys.stdout.write(
        f"Nothing raised and both ways agree: {numbers}, {len(campaign.rows)} rows; "
        f"seed {asked.seed}, {time.monotonic() - began:.0f} s.\n"
    )


if __name__ == "__main__":
    main()
