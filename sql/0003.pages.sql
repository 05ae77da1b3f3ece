-- The index of the page archive, and the log's head: which pages are the log, and up to when.

-- One row per log. The head is the instant of the last cut: everything before it is in the log,
-- and nothing will be entered before it any more. The number of buckets is fixed for ever.
CREATE TABLE logs (
    domain text PRIMARY KEY CHECK (domain <> ''),
    buckets integer NOT NULL CHECK (buckets BETWEEN 1 AND 1024),
    head timestamptz NOT NULL
);

-- One row per cut: an account of what was read, and the offsets that it came from.
CREATE TABLE log_cuts (
    domain text NOT NULL REFERENCES logs,
    closed_before timestamptz NOT NULL,
    instant timestamptz NOT NULL,
    read bigint NOT NULL,
    archived bigint NOT NULL CHECK (archived >= 0),
    parked bigint NOT NULL CHECK (parked >= 0),
    duplicates bigint NOT NULL CHECK (duplicates BETWEEN 0 AND archived),
    committed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (domain, instant),
    -- Two cuts can't begin where one ended: of two rivals, one fails here.
    UNIQUE (domain, closed_before),
    CONSTRAINT cuts_move_on CHECK (instant > closed_before),
    CONSTRAINT every_record_is_archived_or_parked CHECK (read = archived + parked)
);

CREATE TABLE cut_ranges (
    domain text NOT NULL,
    instant timestamptz NOT NULL,
    topic text NOT NULL,
    partition integer NOT NULL CHECK (partition >= 0),
    start_offset bigint NOT NULL CHECK (start_offset >= 0),
    end_offset bigint NOT NULL,
    PRIMARY KEY (domain, instant, topic, partition),
    FOREIGN KEY (domain, instant) REFERENCES log_cuts,
    CONSTRAINT ranges_are_not_empty CHECK (end_offset > start_offset)
);

-- A page is part of the log until it is replaced; then it stays for a while, for readers that
-- began before, and goes.
CREATE TABLE pages (
    page_id uuid PRIMARY KEY,
    domain text NOT NULL REFERENCES logs,
    key text NOT NULL UNIQUE,
    metadata jsonb NOT NULL,
    reason text NOT NULL,
    period timestamptz NOT NULL,
    bucket_numbers integer[] NOT NULL,
    min_position bigint NOT NULL CHECK (min_position >= 0),
    max_position bigint NOT NULL,
    event_count bigint NOT NULL CHECK (event_count > 0),
    encoded_bytes bigint NOT NULL CHECK (encoded_bytes > 0),
    checksum text NOT NULL CHECK (checksum ~ '^[0-9a-f]{64}$'),
    created_at timestamptz NOT NULL DEFAULT now(),
    replaced_at timestamptz,
    CONSTRAINT positions_are_a_range CHECK (max_position >= min_position)
);
CREATE INDEX idx_pages_log ON pages (domain, min_position) WHERE replaced_at IS NULL;
CREATE INDEX idx_pages_period ON pages (domain, period) WHERE replaced_at IS NULL;
CREATE INDEX idx_pages_replaced ON pages (replaced_at) WHERE replaced_at IS NOT NULL;

-- What the tasks of a cut hand over to the transaction that commits it. Not logged: a crash of the
-- server empties these, and the cut is taken again.
CREATE UNLOGGED TABLE staged_ids (
    batch_id uuid NOT NULL,
    task integer NOT NULL,
    event_id uuid NOT NULL,
    reported_at timestamptz NOT NULL,
    staged_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX idx_staged_ids ON staged_ids (batch_id);

CREATE UNLOGGED TABLE staged_parked (
    batch_id uuid NOT NULL,
    task integer NOT NULL,
    topic text NOT NULL,
    partition integer NOT NULL,
    "offset" bigint NOT NULL,
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
    staged_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX idx_staged_parked ON staged_parked (batch_id);
