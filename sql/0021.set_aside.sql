-- Nodes for which the code raises: their events stay in the log and are not folded, until a rebuild
-- finds that they can be. Written in the transaction of the batch that could not fold them.
CREATE TABLE set_aside_nodes (
    domain text NOT NULL CHECK (domain <> ''),
    entity_id uuid NOT NULL,
    since_position bigint NOT NULL CHECK (since_position >= 0),
    event_id uuid NOT NULL,
    kind text NOT NULL,
    error text NOT NULL CHECK (error <> ''),
    set_aside_at timestamptz NOT NULL DEFAULT now(),
    alerted_at timestamptz,
    PRIMARY KEY (domain, entity_id)
);
COMMENT ON COLUMN set_aside_nodes.since_position IS
    'The node''s first event that had no effect; its row says what the log says below.';
COMMENT ON COLUMN set_aside_nodes.event_id IS
    'The event at which the code raised, as far as that is known; else the first one.';
CREATE INDEX idx_set_aside_nodes_untold ON set_aside_nodes (domain) WHERE alerted_at IS NULL;

-- What a batch did without: an error says why from now on, none that it was known before.
CREATE UNLOGGED TABLE handed_set_aside (
    batch_id uuid NOT NULL,
    task integer NOT NULL,
    domain text NOT NULL,
    entity_id uuid NOT NULL,
    since_position bigint NOT NULL CHECK (since_position >= 0),
    event_id uuid NOT NULL,
    kind text NOT NULL,
    error text CHECK (error <> ''),
    staged_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX idx_handed_set_aside ON handed_set_aside (batch_id, task);

ALTER TABLE batch_outcomes ADD COLUMN set_aside bigint NOT NULL DEFAULT 0,
    ADD CONSTRAINT set_aside_is_parked CHECK (set_aside BETWEEN 0 AND parked);
COMMENT ON COLUMN batch_outcomes.set_aside IS
    'Of the parked, those of nodes that were set aside: a replay may come to other outcomes.';

-- A stored hour has no rows of nodes that its replay could not fold.
ALTER TABLE registration_history ADD COLUMN set_aside uuid[] NOT NULL DEFAULT '{}';

-- Why a replay could not fold a node, which then has no state here.
ALTER TABLE rebuilt_registrations ADD COLUMN error text CHECK (error <> ''),
    ADD CONSTRAINT errors_have_no_row CHECK (error IS NULL OR current_state IS NULL);

-- What rows must be is asked where one task stages them, one by one if need be: at the commit it
-- would be one node's row that sinks everybody's.
ALTER TABLE handed_projections
    ALTER COLUMN batch_id SET NOT NULL,
    ALTER COLUMN task SET NOT NULL,
    ALTER COLUMN entity_id SET NOT NULL,
    ALTER COLUMN domain SET NOT NULL,
    ALTER COLUMN tenant SET NOT NULL,
    ALTER COLUMN current_state SET NOT NULL,
    ALTER COLUMN epoch SET NOT NULL,
    ALTER COLUMN node_type SET NOT NULL,
    ALTER COLUMN capabilities SET NOT NULL,
    ALTER COLUMN endpoints SET NOT NULL,
    ALTER COLUMN metadata SET NOT NULL,
    ALTER COLUMN introspected_at SET NOT NULL,
    ALTER COLUMN last_state_change_at SET NOT NULL,
    ALTER COLUMN last_applied_event_id SET NOT NULL,
    ALTER COLUMN last_applied_sequence SET NOT NULL;
ALTER TABLE handed_liveness
    ALTER COLUMN batch_id SET NOT NULL,
    ALTER COLUMN task SET NOT NULL,
    ALTER COLUMN entity_id SET NOT NULL,
    ALTER COLUMN domain SET NOT NULL,
    ALTER COLUMN last_applied_sequence SET NOT NULL,
    ADD CHECK (last_applied_sequence >= 0);
ALTER TABLE handed_refusals
    ALTER COLUMN batch_id SET NOT NULL,
    ALTER COLUMN task SET NOT NULL,
    ALTER COLUMN entity_id SET NOT NULL,
    ALTER COLUMN domain SET NOT NULL,
    ALTER COLUMN position SET NOT NULL,
    ALTER COLUMN outcome SET NOT NULL,
    ALTER COLUMN reason SET NOT NULL,
    ALTER COLUMN event_id SET NOT NULL,
    ALTER COLUMN kind SET NOT NULL,
    ALTER COLUMN tenant SET NOT NULL,
    ALTER COLUMN occurred_at SET NOT NULL,
    ALTER COLUMN times SET NOT NULL,
    ADD CHECK (position >= 0),
    ADD CHECK (outcome IN ('illegal', 'parked')),
    ADD CHECK (times >= 1);
ALTER TABLE handed_projections
    ADD CHECK (domain <> ''),
    ADD CHECK (tenant <> ''),
    ADD CHECK (epoch >= 0),
    ADD CHECK (jsonb_typeof(capabilities) = 'object'),
    ADD CHECK (jsonb_typeof(endpoints) = 'object'),
    ADD CHECK (jsonb_typeof(metadata) = 'object'),
    ADD CHECK (last_applied_sequence >= 0),
    ADD CHECK (last_applied_partition >= 0),
    ADD CHECK (last_applied_offset >= 0),
    ADD CONSTRAINT ack_deadline_only_while_armed CHECK (
        ack_deadline IS NULL
        OR (current_state IN ('accepted', 'awaiting_ack') AND deregistered_at IS NULL)
    ),
    ADD CONSTRAINT active_means_registered CHECK (
        current_state <> 'active' OR registered_at IS NOT NULL
    ),
    ADD CONSTRAINT provenance_is_whole CHECK (
        num_nulls(last_applied_topic, last_applied_partition, last_applied_offset) IN (0, 3)
    );
ALTER TABLE rebuilt_registrations
    ADD CHECK (tenant <> ''),
    ADD CHECK (epoch >= 0),
    ADD CHECK (jsonb_typeof(capabilities) = 'object'),
    ADD CHECK (jsonb_typeof(endpoints) = 'object'),
    ADD CHECK (jsonb_typeof(metadata) = 'object'),
    ADD CHECK (last_applied_sequence >= 0),
    ADD CHECK (last_applied_partition >= 0),
    ADD CHECK (last_applied_offset >= 0),
    ADD CONSTRAINT rows_are_whole CHECK (
        current_state IS NULL
        OR num_nulls(
            domain, tenant, epoch, node_type, capabilities, endpoints, metadata, introspected_at,
            last_state_change_at, last_applied_event_id, last_applied_sequence
        ) = 0
    ),
    ADD CONSTRAINT ack_deadline_only_while_armed CHECK (
        ack_deadline IS NULL
        OR (current_state IN ('accepted', 'awaiting_ack') AND deregistered_at IS NULL)
    ),
    ADD CONSTRAINT active_means_registered CHECK (
        current_state <> 'active' OR registered_at IS NOT NULL
    ),
    ADD CONSTRAINT provenance_is_whole CHECK (
        num_nulls(last_applied_topic, last_applied_partition, last_applied_offset) IN (0, 3)
    );
