"""The same fold in Polars: the rival of the Spark reducer in `benchmarks/reducer.py`.

Heartbeats between two other events collapse; then the k-th step of all nodes is taken together, by
the domain's own transition table, for k from 0 to the longest life. It is exact for any history
without a decider, but a single node with many events makes it slow.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import polars as pl

from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.machine import FIRST_EPOCH, KIND_CODES, KINDS, STATES, UNKNOWN
from onex_platform.domain.transitions import INFORMATIONAL, Effect, Life, When, find_transition

_HEARTBEAT = EnumEventKind.NODE_HEARTBEAT
_BEAT_COLUMNS = ["entity_id", "position", "tenant", "epoch", "occurred_at", "deadline"]
_UUID = (
    r"^(?i:(urn:)?(uuid:)?\{?[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}\}?)$"
)
_TEXTS = ("node_type", "node_name", "node_version", "network_id", "deployment_id")
_JSON = ("capabilities", "endpoints", "metadata")
_TIMES = (
    "introspected_at",
    "ack_deadline",
    "liveness_deadline",
    "ack_timeout_emitted_at",
    "liveness_timeout_emitted_at",
    "registered_at",
    "last_state_change_at",
    "last_heartbeat_at",
    "deregistered_at",
)
_SOURCES = ("described_by", "failed_by", "changed_by")


def fold_pages(files: list[str]) -> pl.DataFrame:
    """Every node's row after all events of the pages."""
    pages = pl.scan_parquet(files)
    is_beat = pl.col("kind") == _HEARTBEAT.value
    beats, changes = pl.collect_all(
        [
            pages.filter(is_beat).select(_BEAT_COLUMNS),
            pages.filter(~is_beat & ~pl.col("duplicate")).with_row_index("source"),
        ]
    )
    return _rows(_lives(_steps(changes, _runs(changes, beats))), changes)


def _runs(changes: pl.DataFrame, beats: pl.DataFrame) -> pl.DataFrame:
    """Heartbeats of one tenant and epoch between two other events of a node, as one."""
    marks = changes.select("entity_id", "position", pl.lit(1, pl.Int32).alias("change"))
    merged = pl.concat(
        [beats.with_columns(pl.lit(0, pl.Int32).alias("change")), marks], how="diagonal"
    ).sort("entity_id", "position")
    keys = ("entity_id", "tenant", "epoch", "change")
    differs = pl.any_horizontal(pl.col(key).ne_missing(pl.col(key).shift()) for key in keys)
    return (
        merged.with_columns(differs.cum_sum().alias("run"))
        .filter(pl.col("change") == 0)
        .group_by("run")
        .agg(
            pl.col("entity_id", "tenant", "epoch").first(),
            pl.col("position", "occurred_at", "deadline").max(),
        )
        .drop("run")
    )


def _steps(changes: pl.DataFrame, runs: pl.DataFrame) -> pl.DataFrame:
    """All steps with the number that each has in its node's life."""
    codes = pl.col("kind").replace_strict(
        {kind.value: code for kind, code in KIND_CODES.items()}, return_dtype=pl.Int32
    )
    retry = pl.col("payload").str.contains(r'"retry_eligible": ?true')
    failed = pl.col("kind") == EnumEventKind.REGISTRATION_FAILED.value
    columns = [*_BEAT_COLUMNS, codes.alias("kind"), (failed & retry).alias("retry"), "source"]
    steps = pl.concat(
        [
            changes.select(columns),
            runs.select(
                *_BEAT_COLUMNS,
                pl.lit(KIND_CODES[_HEARTBEAT], pl.Int32).alias("kind"),
                pl.lit(False).alias("retry"),
                pl.lit(None, pl.UInt32).alias("source"),
            ),
        ]
    ).sort("entity_id", "position")
    return steps.with_columns(
        pl.int_range(pl.len()).over("entity_id").alias("number"),
        pl.len().over("entity_id").alias("steps"),
    )


def _lives(steps: pl.DataFrame) -> pl.DataFrame:
    """What the steps amount to, node by node; nodes with the most steps come first, so that
    those that have a k-th step are always the first so many."""
    by_number = steps.sort("number", "steps", "entity_id", descending=[False, True, False])
    turns = by_number.partition_by("number", maintain_order=True)
    time, tenant = steps.schema["occurred_at"], steps.schema["tenant"]
    alive = turns[0].select(
        "entity_id",
        pl.lit(UNKNOWN, pl.Int32).alias("state"),
        pl.lit(-1, pl.Int64).alias("at"),
        pl.lit(None, tenant).alias("owner"),
        pl.lit(0, pl.Int64).alias("life"),
        *(pl.lit(None, time).alias(name) for name in _TIMES),
        *(pl.lit(None, pl.UInt32).alias(name) for name in _SOURCES),
    )
    finished = []
    for turn in turns:
        if len(turn) < len(alive):
            finished.append(alive.slice(len(turn)))
        alive = _step(alive.head(len(turn)).hstack(turn.drop("entity_id")))
    return pl.concat([*finished, alive]).filter(pl.col("state") != UNKNOWN)


def _moves() -> pl.DataFrame:
    """The transition table, compiled: kind, new life, state, retry → where to, and the effects."""
    rows = []
    states = [*STATES, None]
    for kind, life, state, retry in product(
        KINDS, (Life.CURRENT, Life.NEW), range(len(states)), (False, True)
    ):
        found = find_transition(kind, life, states[state], retry)
        row: dict[str, Any] = {"allowed": found is not None, "to": None, "judges": False}
        row |= {effect.name: found is not None and effect in found.effects for effect in Effect}
        if found is not None:
            row["to"] = None if found.to is None else STATES.index(found.to)
            row["judges"] = found.when is When.DEADLINE_STANDS
        rows.append(row)
    return pl.DataFrame(rows, schema_overrides={"to": pl.Int32})


_MOVES = _moves()
_TERMINAL = [code for code, state in enumerate(STATES) if state.is_terminal()]
_AWAITS_ACK = [code for code, state in enumerate(STATES) if state.awaits_ack()]
_LIVES = [code for code, state in enumerate(STATES) if state.requires_liveness()]
_INFORMATIONAL = [KIND_CODES[kind] for kind in INFORMATIONAL]
_INTROSPECTION = KIND_CODES[EnumEventKind.NODE_INTROSPECTION]
_ACK_TIMED_OUT = KIND_CODES[EnumEventKind.ACK_TIMED_OUT]


def _step(frame: pl.DataFrame) -> pl.DataFrame:
    """One step of every node in the frame, as `domain.machine.step` takes it."""
    col, when = pl.col, pl.when
    known = col("state") != UNKNOWN
    introspects = col("kind") == _INTROSPECTION
    closed = col("deregistered_at").is_not_null()
    over = closed | col("state").is_in(_TERMINAL)
    older = known & introspects & (col("occurred_at") < col("introspected_at"))
    begins = (
        when(~known)
        .then(introspects)
        .when(col("epoch").is_null())
        .then(introspects & over)
        .otherwise(introspects & (col("epoch") > col("life")))
    )
    frame = frame.with_columns(begins.alias("begins"))
    begins = col("begins")
    refused = known & (
        (col("tenant") != col("owner"))
        | (col("position") <= col("at"))
        | (col("epoch").is_null() & begins & older)
        | (col("epoch") < col("life")).fill_null(False)
        | ((col("epoch") > col("life")).fill_null(False) & ~introspects)
        | (~begins & (closed | older))
    )
    place = (
        (col("kind") * 2 + begins.cast(pl.Int32)) * (len(STATES) + 1) + col("state")
    ) * 2 + col("retry").cast(pl.Int32)
    frame = frame.with_columns(
        (refused | col("kind").is_in(_INFORMATIONAL)).fill_null(False).alias("refused"),
        place.alias("place"),
    )
    frame = frame.hstack(_MOVES[frame["place"]])
    armed = (
        when(col("kind") == _ACK_TIMED_OUT)
        .then(col("ack_deadline"))
        .otherwise(col("liveness_deadline"))
    )
    frame = frame.with_columns(
        (
            ~col("refused") & col("allowed") & ~(col("judges") & armed.ne_missing(col("deadline")))
        ).alias("applied")
    )

    def does(effect: Effect) -> pl.Expr:
        return col("applied") & col(effect.name)

    def cleared(name: str) -> pl.Expr:
        return when(does(Effect.BEGIN_LIFE)).then(None).otherwise(col(name))

    now, start = col("occurred_at"), does(Effect.BEGIN_LIFE)
    armed_ack, armed_life = does(Effect.ARM_ACK), does(Effect.ARM_LIVENESS)
    moved = col("applied") & col("to").is_not_null() & (col("to") != col("state"))
    later = does(Effect.BEAT) & (
        col("last_heartbeat_at").is_null() | (now > col("last_heartbeat_at"))
    )
    extends = does(Effect.EXTEND_LIVENESS) & (col("deadline") > col("liveness_deadline"))
    next_life = (
        when(col("epoch").is_not_null())
        .then(col("epoch"))
        .when(known)
        .then(col("life") + 1)
        .otherwise(FIRST_EPOCH)
    )
    after = frame.select(
        "entity_id",
        when(moved).then(col("to")).otherwise(col("state")).alias("state"),
        when(col("applied")).then(col("position")).otherwise(col("at")).alias("at"),
        when(start).then(col("tenant")).otherwise(col("owner")).alias("owner"),
        when(start).then(next_life).otherwise(col("life")).alias("life"),
        when(does(Effect.DESCRIBE))
        .then(now)
        .otherwise(col("introspected_at"))
        .alias("introspected_at"),
        when(armed_ack)
        .then(col("deadline"))
        .otherwise(cleared("ack_deadline"))
        .alias("ack_deadline"),
        when(armed_life | extends)
        .then(col("deadline"))
        .otherwise(cleared("liveness_deadline"))
        .alias("liveness_deadline"),
        when(does(Effect.MARK_ACK_TIMEOUT))
        .then(now)
        .when(armed_ack)
        .then(None)
        .otherwise(cleared("ack_timeout_emitted_at"))
        .alias("ack_timeout_emitted_at"),
        when(does(Effect.MARK_LIVENESS_TIMEOUT))
        .then(now)
        .when(armed_life)
        .then(None)
        .otherwise(cleared("liveness_timeout_emitted_at"))
        .alias("liveness_timeout_emitted_at"),
        when(armed_life & col("registered_at").is_null())
        .then(now)
        .otherwise(col("registered_at"))
        .alias("registered_at"),
        when(moved).then(now).otherwise(col("last_state_change_at")).alias("last_state_change_at"),
        when(later).then(now).otherwise(col("last_heartbeat_at")).alias("last_heartbeat_at"),
        when(does(Effect.CLOSE))
        .then(now)
        .otherwise(cleared("deregistered_at"))
        .alias("deregistered_at"),
        when(does(Effect.DESCRIBE))
        .then(col("source"))
        .otherwise(col("described_by"))
        .alias("described_by"),
        when(does(Effect.RECORD_FAILURE))
        .then(col("source"))
        .otherwise(cleared("failed_by"))
        .alias("failed_by"),
        when(col("applied") & (col("kind") != KIND_CODES[_HEARTBEAT]))
        .then(col("source"))
        .otherwise(col("changed_by"))
        .alias("changed_by"),
    )
    open_ = col("deregistered_at").is_null()
    return after.with_columns(
        when(open_ & col("state").is_in(_AWAITS_ACK))
        .then(col("ack_deadline"))
        .alias("ack_deadline"),
        when(open_ & col("state").is_in(_LIVES))
        .then(col("liveness_deadline"))
        .alias("liveness_deadline"),
    )


def _rows(lives: pl.DataFrame, changes: pl.DataFrame) -> pl.DataFrame:
    """The lives with what their last events said, as columns of the registry."""
    described = changes[lives["described_by"]]
    payload = described["payload"]
    texts = {name: payload.str.json_path_match(f"$.{name}") for name in (*_TEXTS, *_JSON)}
    plain = described.select(
        pl.when(~pl.col("node_id").str.contains(_UUID)).then(pl.col("node_id")).alias("plain")
    )["plain"]
    origin = changes[lives["changed_by"]]
    failure = changes.select("source", "payload").rename({"source": "failed_by"})
    failures = lives.select("failed_by").join(
        failure, on="failed_by", how="left", maintain_order="left"
    )["payload"]
    return (
        lives.select(
            "entity_id",
            pl.col("owner").alias("tenant"),
            pl.col("state")
            .replace_strict(dict(enumerate(map(str, STATES))), return_dtype=pl.String)
            .alias("current_state"),
            pl.col("life").alias("epoch"),
            *_TIMES,
            pl.col("at").alias("last_applied_sequence"),
        )
        .with_columns(
            **texts,
            failure_code=failures.str.json_path_match("$.error_code"),
            failure_message=failures.str.json_path_match("$.error_message"),
            last_applied_event_id=origin["event_id"],
            last_applied_topic=origin["topic"],
            last_applied_partition=origin["partition"],
            last_applied_offset=origin["offset"],
            correlation_id=origin["correlation_id"],
        )
        .with_columns(
            pl.coalesce(pl.when(pl.col("node_name") != "").then(pl.col("node_name")), plain).alias(
                "node_name"
            ),
            pl.col("node_type").str.to_lowercase(),
        )
    )
