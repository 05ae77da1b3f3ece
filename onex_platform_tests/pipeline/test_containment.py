"""One node's trouble is its own: the others are answered as if nothing had happened."""

from __future__ import annotations

import json
import sys
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from onex_platform.base.settings import Settings
from onex_platform.domain.decider import RegistrationPolicy
from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.states import EnumRegistrationState
from onex_platform.engines.kafka.clients import KafkaRecord, end_positions, read_to_end
from onex_platform.ingest.archive import PageArchive
from onex_platform.ingest.verification import verify_log
from onex_platform.pipeline import loop, serve
from onex_platform.projections import checks
from onex_platform.projections.fold.refold import Scope
from onex_platform.projections.reader import ProjectionReaderRegistration
from onex_platform.projections.rebuild.proof import live_equals_replay
from onex_platform.projections.rebuild.rebuild import open_rebuild
from onex_platform.projections.reconciliation import look
from onex_platform.topics.catalogue import load_catalogue
from onex_platform_tests.support.archives import open_archive
from onex_platform_tests.support.broker import send, sent
from onex_platform_tests.support.folded_logs import require_live_equals_replay, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.servers, pytest.mark.long]

Kind = EnumEventKind
State = EnumRegistrationState
NODES = 1000


class Brittle(frozenset[str]):
    """A rule about capabilities that breaks at one it did not expect."""

    def __and__(self, offered: AbstractSet[object]) -> frozenset[str]:
        if "brittle" in offered:
            raise RuntimeError("the policy breaks at 'brittle'")
        return frozenset()


def breaking_policy(_: Settings) -> RegistrationPolicy:
    """What a policy of the next release could be like; it travels to Spark's workers."""
    return RegistrationPolicy.model_construct(
        **{**dict(RegistrationPolicy()), "forbidden_capabilities": Brittle()}
    )


@pytest.fixture(autouse=True, scope="module")
def workers_know_this_module() -> None:
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])


def served(spark: SparkSession, archive: PageArchive, *records: KafkaRecord) -> Any:
    send(archive.settings, records)
    return serve(spark, archive, linger_seconds=0.5)


def errors_about(settings: Settings, node: str, since: Any) -> list[dict[str, Any]]:
    topic = load_catalogue().for_kind(Kind.ERROR_DETECTED).topic
    payloads = (
        json.loads(m.value() or b"")["payload"] for m in read_to_end(settings, [topic], since)
    )
    return [payload for payload in payloads if payload["context"].get("node") == node]


def test_the_highest_epoch_ends_nobody_s_service(
    spark: SparkSession, pipeline_settings: Settings
) -> None:
    odd, good = str(uuid4()), str(uuid4())
    with open_archive(pipeline_settings) as archive:
        reader = ProjectionReaderRegistration(archive.database)
        served(spark, archive, sent(Kind.NODE_INTROSPECTION, odd, epoch=2**62))
        served(spark, archive, sent(Kind.NODE_SHUTDOWN, odd))
        account = served(
            spark,
            archive,
            sent(Kind.NODE_INTROSPECTION, odd),
            sent(Kind.NODE_INTROSPECTION, good),
        )
        assert account.failures == []
        rows = {str(key.entity_id): row for key, row in rows_of(archive).items()}
        assert (rows[odd].epoch, rows[good].epoch) == (2**62 + 1, 1)
        assert {row.current_state for row in rows.values()} == {State.AWAITING_ACK}
        # What was decided came back through Kafka as what it is, and the next life is one more.
        assert account.drained.parked == 0
        assert account.drained.duplicates == 4
        served(spark, archive, *(sent(Kind.NODE_ACK, node) for node in (odd, good)))
        assert {row.current_state for row in rows_of(archive).values()} == {State.ACTIVE}
        assert reader.get_set_aside() == {}
        # A number that leaves none for the next life is parked, and nobody else notices.
        account = served(
            spark,
            archive,
            sent(Kind.NODE_INTROSPECTION, odd, epoch=2**63 - 1),
            sent(Kind.NODE_HEARTBEAT, good),
        )
        assert (account.drained.parked, account.drained.outcomes["applied"]) == (1, 1)
        require_live_equals_replay(archive)


@pytest.mark.parametrize("small_cut_events", [0, 50_000], ids=["task per bucket", "one task"])
def test_one_node_among_a_thousand_that_breaks_the_code_is_set_aside_and_comes_back(
    spark: SparkSession,
    pipeline_settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    small_cut_events: int,
) -> None:
    pages = pipeline_settings.pages.model_copy(update={"small_cut_events": small_cut_events})
    settings = pipeline_settings.model_copy(update={"pages": pages})
    sick = str(uuid4())
    topic = load_catalogue().for_kind(Kind.ERROR_DETECTED).topic
    since = end_positions(settings, [topic])
    joining = [
        sent(Kind.NODE_INTROSPECTION, f"node-{n}", capabilities={"read": True})
        for n in range(NODES - 1)
    ]
    joining.insert(500, sent(Kind.NODE_INTROSPECTION, sick, capabilities={"brittle": True}))
    with open_archive(settings) as archive:
        reader = ProjectionReaderRegistration(archive.database)
        with monkeypatch.context() as patch:
            patch.setattr(loop, "policy_of", breaking_policy)
            account = served(spark, archive, *joining)
            assert account.failures == []
            # Everybody else is answered, and the answers are published.
            assert reader.count_by_state()[State.AWAITING_ACK] == NODES - 1
            assert account.published.events == 2 * (NODES - 1)
            [mark] = reader.get_set_aside().values()
            assert str(mark.entity_id) == sick
            assert mark.error == "RuntimeError: the policy breaks at 'brittle'"
            assert reader.get_entity_state(mark.entity_id) is None
            # It is told once, with what an operator needs.
            [told] = errors_about(settings, sick, since)
            assert told["error_code"] == "NODE_SET_ASIDE"
            assert told["context"]["error"] == mark.error
            acks = [sent(Kind.NODE_ACK, f"node-{n}") for n in range(NODES - 1)]
            served(spark, archive, *acks, sent(Kind.NODE_HEARTBEAT, sick))
            assert reader.count_by_state()[State.ACTIVE] == NODES - 1
            assert len(errors_about(settings, sick, since)) == 1
        for verdict in (checks.accounting(look(archive.log, whole=True)),):
            assert verdict.passed, verdict.description
        assert not checks.nobody_is_set_aside(archive.platform, datetime.now(UTC)).passed
        assert verify_log(archive.log).faults == []
        proof = live_equals_replay(spark, archive.log)
        assert (proof.holds, proof.is_contained, proof.comparison.equal) == (False, True, NODES - 1)
        # The policy that breaks is gone: the log has all that is needed.
        scope = Scope(nodes=frozenset({mark.entity_id}))
        with open_rebuild(spark, archive.log, scope) as rebuild:
            assert rebuild.swap().set_aside == 1
        assert reader.get_set_aside() == {}
        require_live_equals_replay(archive)
        assert live_equals_replay(spark, archive.log).holds
        served(spark, archive, sent(Kind.NODE_INTROSPECTION, sick))
        assert reader.get_registration_status(mark.entity_id) is State.AWAITING_ACK
        with archive.database.transaction() as cursor:
            [counts] = cursor.execute(
                "SELECT sum(set_aside)::int AS aside FROM batch_outcomes"
            ).fetchall()
        assert counts.aside == 2
