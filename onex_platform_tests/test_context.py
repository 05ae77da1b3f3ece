"""The context that stations are handed: whoever lost its lease can't commit through any part."""

from __future__ import annotations

from types import SimpleNamespace

import dagster as dg
import pytest

from onex_platform.base.errors import ConfigurationError
from onex_platform.base.settings import Settings
from onex_platform.checks import Verdict
from onex_platform.context import open_platform
from onex_platform.definitions import build_definitions
from onex_platform.domain.identity import CANARY_TENANT
from onex_platform.engines.postgres.database import Cursor
from onex_platform.engines.postgres.leases import LeaseLostError
from onex_platform.ingest.archive import PageArchive, registration_log
from onex_platform.ingest.cuts.committed_cuts import CommittedCuts
from onex_platform.pipeline.proof_times import last_proofs, note_proof
from onex_platform.topics.catalogue import load_catalogue

pytestmark = pytest.mark.servers

VERDICT = Verdict(True, "It holds.", {})


def refuse(cursor: Cursor) -> None:
    raise LeaseLostError("The lease is somebody else's.")


def note(cursor: Cursor, domain: str) -> None:
    cursor.execute("UPDATE logs SET buckets = buckets WHERE domain = %s", [domain])
    assert cursor.rowcount == 1


def test_the_canarys_tenant_is_nobody_elses() -> None:
    settings = Settings(tenant=CANARY_TENANT)
    with (
        pytest.raises(ConfigurationError, match="ONEX_TENANT=onex-canary is reserved"),
        open_platform(settings, load_catalogue()),
    ):
        pass


def test_a_fence_holds_for_the_platform_and_what_is_opened_on_it(archive: PageArchive) -> None:
    fenced = archive.fenced(refuse)
    with pytest.raises(LeaseLostError):
        note_proof(fenced.platform, "accounting", VERDICT)
    with pytest.raises(LeaseLostError):
        fenced.log.append([], within=lambda cursor: note(cursor, archive.domain))
    assert last_proofs(archive.platform) == []
    note_proof(archive.platform, "accounting", VERDICT)
    [proof] = last_proofs(archive.platform)
    assert proof.passed


def test_whoever_opens_the_log_first_finds_its_head(archive_settings: Settings) -> None:
    """A fold may be asked for before anybody took a cut."""
    with open_platform(archive_settings, load_catalogue()) as platform:
        log = registration_log(platform)
        assert CommittedCuts(log).end_of_batch(0, 1000) == 0


def test_the_resources_of_a_run_share_its_fence(archive_settings: Settings) -> None:
    built = build_definitions(settings=archive_settings).resources
    names = ("settings", "presence", "platform", "log", "archive")
    with dg.build_resources({name: built[name] for name in names}) as free:
        note_proof(free.platform, "accounting", VERDICT)  # a tick of a sensor has no lease
    lost = SimpleNamespace(lease=SimpleNamespace(fence=refuse))
    own = {name: built[name] for name in ("settings", "platform")} | {"presence": lost}
    with dg.build_resources(own) as held, pytest.raises(LeaseLostError):
        note_proof(held.platform, "live_equals_replay", VERDICT)
    with dg.build_resources({name: built[name] for name in names}) as free:
        assert [proof.name for proof in last_proofs(free.platform)] == ["accounting"]
