"""The topics that the registration log is made of: which they are, how far each is read, and the
rules by which their events are taken in."""

from __future__ import annotations

from datetime import datetime, timedelta

from onex_platform.base.settings import Settings
from onex_platform.context import PlatformContext
from onex_platform.domain.deadlines import Durations
from onex_platform.domain.intake import TRUSTS_NOBODY, IntakeRules, Signers
from onex_platform.engines.kafka.topic_admin import topic_ids
from onex_platform.ingest.admission.fast_path import InputTopic
from onex_platform.ingest.cuts.consistent_cut import InputPartition, TopicIds
from onex_platform.ingest.offsets import consumer_offsets, read_topics
from onex_platform.topics.catalogue import Catalogue


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


def next_offsets(platform: PlatformContext) -> dict[InputPartition, int]:
    """The next offset of each input partition that was read before."""
    with platform.database.transaction() as cursor:
        offsets = consumer_offsets(cursor, platform.domain)
    return {InputPartition(*place): offset for place, offset in offsets.items()}


def input_ids(platform: PlatformContext) -> TopicIds:
    """Which topics were read, and which there are now."""
    with platform.database.transaction() as cursor:
        read = read_topics(cursor, platform.domain)
    topics = input_topics(platform.catalogue)
    return TopicIds(read, topic_ids(platform.kafka.admin(), topics.keys()))


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
