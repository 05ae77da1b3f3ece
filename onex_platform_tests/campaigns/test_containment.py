"""Mutated records of every kind: nothing raises, rows and columns agree, PostgreSQL takes all."""

from __future__ import annotations

from uuid import uuid4

import pytest

from onex_platform.domain.identity import REGISTRATION_DOMAIN
from onex_platform.domain.order import position_at
from onex_platform.ingest.cuts.staged_rows import stage
from onex_platform.projections.write.projector import ProjectionBatch
from onex_platform.projections.write.staged_batch import TABLES, Handed, Staged, hand_over
from onex_platform_tests.campaigns.containment import Campaign
from onex_platform_tests.support.stored_rows import Store


def test_whatever_is_admitted_can_be_folded_and_decided() -> None:
    campaign = Campaign(seed=20)
    for _ in campaign.run(8_000):
        pass
    # What it came across, so that a generator that parks everything does not pass for a proof.
    for name, least in {"applied": 1500, "facts": 500, "unread": 1000, "duplicate": 30}.items():
        assert campaign.counts[name] >= least, name
    for name in ("stale", "illegal", "parked"):
        assert campaign.counts[name] >= 100, name


@pytest.mark.servers
def test_whatever_is_folded_and_decided_can_be_stored(store: Store) -> None:
    campaign = Campaign(seed=21)
    position = 0
    for fed in campaign.run(4_000):
        batch_id, end = uuid4(), position_at(fed.until)
        fold, outcomes = fed.fold, fed.reference.outcomes
        with store.transaction() as cursor:
            stage(cursor, batch_id, 0, fed.entered.events, fed.entered.parked)
            staged = hand_over(
                cursor,
                batch_id,
                0,
                REGISTRATION_DOMAIN,
                Handed(fold.changed(), fed.published, fold.refused),
            )
        result = store.projector.persist_batch(
            ProjectionBatch(
                domain=REGISTRATION_DOMAIN,
                start=position,
                end=end,
                read=outcomes.total(),
                outcomes=outcomes,
                content=Staged(batch_id, {table: staged[table] for table in TABLES}),
            )
        )
        assert result.committed
        position = end
    stored = {row.key: row.domain_columns() for row in store.reader.iter_all()}
    assert stored == {
        key: row.domain_columns() for key, row in campaign.rows.items() if not row.is_closed()
    }
    assert store.select("SELECT count(*) FROM outbox") != [(0,)]
