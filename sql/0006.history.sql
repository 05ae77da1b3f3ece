-- Time: each hour's end state, and the side table of a rebuild.

-- The state at the end of an hour lies in the page store; here stands where, and how far the log
-- was folded for it.
CREATE TABLE registration_history (
    domain text NOT NULL REFERENCES logs,
    hour timestamptz NOT NULL,
    position bigint NOT NULL CHECK (position >= 0),
    nodes bigint NOT NULL CHECK (nodes >= 0),
    objects jsonb NOT NULL CHECK (jsonb_typeof(objects) = 'array'),
    written_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (domain, hour),
    UNIQUE (domain, position),
    CONSTRAINT hours_are_whole CHECK (hour = date_trunc('hour', hour, 'UTC'))
);

-- Rebuilds and proofs under way. Each holds the advisory lock of its id: a row whose lock is free
-- was left by a process that died. Not logged, like the rows beside it: after a crash of the server
-- both are gone, and the rebuild finds that out before it swaps anything.
CREATE UNLOGGED TABLE rebuilds (
    rebuild_id uuid PRIMARY KEY,
    domain text NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now()
);

-- What the log amounts to for the nodes of a rebuild, to be compared with the live rows. A row
-- without a state is a node of the rebuild that the log gives no row.
CREATE UNLOGGED TABLE rebuilt_registrations AS
    SELECT NULL::uuid AS rebuild_id, NULL::integer AS bucket, * FROM registrations WITH NO DATA;
ALTER TABLE rebuilt_registrations DROP COLUMN row_version;
ALTER TABLE rebuilt_registrations ADD PRIMARY KEY (rebuild_id, entity_id);
CREATE INDEX idx_rebuilt_registrations_bucket ON rebuilt_registrations (rebuild_id, bucket);
