-- What the reducer's tasks hand over to the transaction that commits their batch. Not logged: a
-- crash of the server empties these, and the batch is folded again.

ALTER TABLE illegal_events ADD COLUMN times bigint NOT NULL DEFAULT 1 CHECK (times >= 1);
COMMENT ON COLUMN illegal_events.times IS
    'How many events the entry stands for: a run of heartbeats is one entry, at its first.';

CREATE UNLOGGED TABLE handed_projections AS
    SELECT NULL::uuid AS batch_id, NULL::integer AS task, * FROM registration_projections
    WITH NO DATA;
ALTER TABLE handed_projections
    DROP COLUMN row_version,
    ADD COLUMN staged_at timestamptz NOT NULL DEFAULT now();
CREATE INDEX idx_handed_projections ON handed_projections (batch_id, task);

CREATE UNLOGGED TABLE handed_liveness AS
    SELECT NULL::uuid AS batch_id, NULL::integer AS task, * FROM registration_liveness
    WITH NO DATA;
ALTER TABLE handed_liveness ADD COLUMN staged_at timestamptz NOT NULL DEFAULT now();
CREATE INDEX idx_handed_liveness ON handed_liveness (batch_id, task);

CREATE UNLOGGED TABLE handed_facts (
    batch_id uuid NOT NULL,
    task integer NOT NULL,
    position bigint NOT NULL,
    domain text NOT NULL,
    entity_id uuid NOT NULL,
    event_kind text NOT NULL,
    event_id uuid NOT NULL,
    event_key text,
    envelope jsonb NOT NULL,
    reported_at timestamptz NOT NULL,
    staged_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX idx_handed_facts ON handed_facts (batch_id, task);

CREATE UNLOGGED TABLE handed_refusals AS
    SELECT NULL::uuid AS batch_id, NULL::integer AS task, * FROM illegal_events WITH NO DATA;
ALTER TABLE handed_refusals ADD COLUMN staged_at timestamptz NOT NULL DEFAULT now();
CREATE INDEX idx_handed_refusals ON handed_refusals (batch_id, task);
