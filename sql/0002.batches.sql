-- What a batch writes besides rows, always in one transaction with them: where it stands, which
-- ids it has seen, what it has to publish, and the account of every record that it read.

-- Every position below this one is folded. The row's lock is also the turn to write: one writer
-- per domain.
CREATE TABLE fold_cursors (
    domain text PRIMARY KEY CHECK (domain <> ''),
    position bigint NOT NULL CHECK (position >= 0),
    moved_at timestamptz NOT NULL DEFAULT now()
);

-- The next offset to read of each input partition. Offsets of different partitions never meet.
CREATE TABLE consumer_cursors (
    domain text NOT NULL,
    topic text NOT NULL,
    partition integer NOT NULL CHECK (partition >= 0),
    next_offset bigint NOT NULL CHECK (next_offset >= 0),
    moved_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (domain, topic, partition)
);

-- The ids of events that are in the log; heartbeats stay out. Pruned by the time that the event
-- itself reports, because that is what a repetition of it will report again.
CREATE TABLE event_ledger (
    event_id uuid NOT NULL,
    domain text NOT NULL,
    reported_at timestamptz NOT NULL,
    PRIMARY KEY (event_id, domain)
);
CREATE INDEX idx_event_ledger_pruning ON event_ledger (domain, reported_at);

-- Ids reported before this instant may be forgotten: whether such an event is new can't be told.
CREATE TABLE ledger_floors (
    domain text PRIMARY KEY,
    pruned_before timestamptz NOT NULL
);

-- Facts of the platform itself (timeouts, operators' acts) that wait for their place in the log.
CREATE TABLE fact_inbox (
    event_id uuid NOT NULL,
    domain text NOT NULL,
    entity_id uuid NOT NULL,
    kind text NOT NULL,
    tenant text NOT NULL,
    node_id text,
    node_name text,
    epoch bigint CHECK (epoch >= 0),
    occurred_at timestamptz NOT NULL,
    deadline timestamptz,
    payload jsonb NOT NULL CHECK (jsonb_typeof(payload) = 'object'),
    correlation_id uuid,
    cause_id uuid,
    PRIMARY KEY (event_id, domain)
);
CREATE INDEX idx_fact_inbox_waiting ON fact_inbox (domain, occurred_at, event_id);

-- What must reach Kafka, in order of id; an entry goes once the broker acknowledged it.
CREATE TYPE outbox_entry AS ENUM ('snapshot', 'tombstone', 'event');

CREATE TABLE outbox (
    domain text NOT NULL,
    id bigint GENERATED ALWAYS AS IDENTITY,
    entry outbox_entry NOT NULL,
    entity_id uuid NOT NULL,
    row_version bigint CHECK (row_version >= 1),
    event_kind text,
    event_id uuid,
    event_key text,
    envelope jsonb,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (domain, id),
    CONSTRAINT entry_has_what_its_kind_needs CHECK (
        CASE entry
            WHEN 'event' THEN
                row_version IS NULL AND num_nulls(event_kind, event_id, envelope) = 0
            ELSE
                row_version IS NOT NULL
                AND num_nonnulls(event_kind, event_id, event_key, envelope) = 0
        END
    )
);

-- One row per batch: what became of everything that it read.
CREATE TABLE batch_outcomes (
    domain text NOT NULL,
    start_position bigint NOT NULL CHECK (start_position >= 0),
    end_position bigint NOT NULL,
    read bigint NOT NULL,
    applied bigint NOT NULL CHECK (applied >= 0),
    duplicate bigint NOT NULL CHECK (duplicate >= 0),
    stale bigint NOT NULL CHECK (stale >= 0),
    illegal bigint NOT NULL CHECK (illegal >= 0),
    parked bigint NOT NULL CHECK (parked >= 0),
    committed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (domain, end_position),
    CONSTRAINT positions_rise CHECK (end_position > start_position),
    CONSTRAINT every_record_has_one_outcome CHECK (
        read = applied + duplicate + stale + illegal + parked
    )
);

-- Events of the log that were refused for the row they were about, and why.
CREATE TABLE illegal_events (
    entity_id uuid NOT NULL,
    domain text NOT NULL,
    position bigint NOT NULL CHECK (position >= 0),
    outcome text NOT NULL CHECK (outcome IN ('illegal', 'parked')),
    reason text NOT NULL,
    event_id uuid NOT NULL,
    kind text NOT NULL,
    tenant text NOT NULL,
    occurred_at timestamptz NOT NULL,
    PRIMARY KEY (entity_id, domain, position)
);

-- Records that could not enter the log, as they were read, so that they can be read again.
CREATE TABLE parked_records (
    topic text NOT NULL,
    partition integer NOT NULL CHECK (partition >= 0),
    "offset" bigint NOT NULL CHECK ("offset" >= 0),
    domain text NOT NULL,
    kind text NOT NULL,
    reason text NOT NULL,
    detail text NOT NULL,
    record_timestamp timestamptz,
    append_time boolean NOT NULL,
    legacy boolean NOT NULL,
    key bytea,
    value bytea,
    header_names text[] NOT NULL,
    header_values bytea[] NOT NULL,
    parked_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (topic, partition, "offset"),
    CONSTRAINT headers_are_pairs CHECK (cardinality(header_names) = cardinality(header_values))
);
CREATE INDEX idx_parked_records_reason ON parked_records (domain, reason, parked_at);
