"""Verdicts on the log and its topics: yes or no, a sentence, and the numbers behind it."""

from __future__ import annotations

from onex_platform.checks import Number, Verdict
from onex_platform.engines.kafka.topic_admin import BROKER_TIME, TIMESTAMP_TYPE
from onex_platform.governance.provision import Drift
from onex_platform.ingest.lag import TopicState
from onex_platform.ingest.verification import LogAccount
from onex_platform.log.verify.page_check import LogFault, PagesAccount

_SHOWN = 10


def archive_keeps_up(state: TopicState) -> Verdict:
    """Whether the archive is close enough behind an input topic, and safe from its retention."""
    numbers = topic_numbers(state)
    lag = state.lag
    if lag is None:
        return Verdict(True, "The archive does not read this topic.", numbers)
    if lag.lost:
        return Verdict(
            False, f"{lag.lost} records were deleted before they were archived.", numbers
        )
    if lag.restarted:
        return Verdict(
            False,
            f"The offsets of {lag.restarted} partitions began anew: the topic was made anew or cut"
            " short. `onex pages skip-lost` reads it from its beginning.",
            numbers,
        )
    if lag.endangered:
        left = lag.retention_left
        return Verdict(False, f"Records that are not archived may be deleted in {left}.", numbers)
    return Verdict(
        not lag.verdict.is_alarm,
        f"{lag.events} records wait, the oldest for {lag.seconds:.1f} s: {lag.verdict}.",
        numbers,
    )


def broker_dates_records(state: TopicState) -> Verdict:
    """Whether the records of an input topic are dated by one clock, the broker's."""
    if state.lag is None or state.lag.timestamps == BROKER_TIME:
        return Verdict(True, "Records are dated by the broker.", {})
    drift = Drift(state.topic, TIMESTAMP_TYPE, BROKER_TIME, state.lag.timestamps)
    return Verdict(
        False,
        f"{drift}. Its senders date the records: a cut takes them as they come, at the earlier of"
        " their time and its own. Alter the topic's setting.",
        {TIMESTAMP_TYPE: state.lag.timestamps},
    )


def log_is_whole(account: LogAccount) -> Verdict:
    """Whether every offset was read once, and every event that was read is in a page once."""
    numbers: dict[str, Number] = {
        "cuts": account.cuts,
        "offsets": account.offsets,
        "lost offsets": account.lost_offsets,
        "offset restarts": account.restarts,
        "echoes": account.echoes,
        "events": account.events,
    }
    return _verdict("Every offset and every event is there once.", account.faults, numbers)


def pages_are_sound(account: PagesAccount) -> Verdict:
    """Whether the pages lie in the store with the bytes that they were written with."""
    numbers: dict[str, Number] = {
        "read pages": account.checked_pages,
        "read bytes": account.checked_bytes,
    }
    return _verdict("Every page that was read is as it was written.", account.faults, numbers)


def _verdict(praise: str, faults: list[LogFault], numbers: dict[str, Number]) -> Verdict:
    named = " ".join(fault.sentence for fault in faults[:_SHOWN])
    return Verdict(not faults, named or praise, numbers | {"faults": len(faults)})


def topic_numbers(state: TopicState) -> dict[str, Number]:
    """A topic's state as metadata."""
    numbers: dict[str, Number] = {
        "partitions": state.partitions,
        "records": state.records,
        "end offset": state.end_offset,
    }
    if state.lag is not None:
        numbers |= {
            "lag in events": state.lag.events,
            "lag in seconds": state.lag.seconds,
            "lag verdict": state.lag.verdict.value,
            "lost events": state.lag.lost,
            "restarted partitions": state.lag.restarted,
        }
        if state.lag.retention_left is not None:
            numbers["retention left in seconds"] = state.lag.retention_left.total_seconds()
    return numbers
