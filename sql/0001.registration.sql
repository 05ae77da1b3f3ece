-- The registry: what is known of each node, and beside it how long the node may still be silent.
--
-- A heartbeat moves two instants and nothing else, but it is by far the most frequent event. They
-- stand in a narrow table of their own, so that a heartbeat touches neither the wide row nor its
-- indexes. The view puts both together. Reasons and figures: docs/projection-store.md

CREATE TYPE registration_state AS ENUM (
    'pending_registration',
    'accepted',
    'awaiting_ack',
    'rejected',
    'ack_timed_out',
    'ack_received',
    'active',
    'liveness_expired'
);

CREATE TYPE registration_node_type AS ENUM ('effect', 'compute', 'reducer', 'orchestrator');

CREATE TABLE registration_projections (
    entity_id uuid NOT NULL,
    domain text NOT NULL CHECK (domain <> ''),
    tenant text NOT NULL CHECK (tenant <> ''),

    current_state registration_state NOT NULL,
    epoch bigint NOT NULL CHECK (epoch >= 0),
    node_type registration_node_type NOT NULL,
    node_name text,
    node_version text,
    capabilities jsonb NOT NULL CHECK (jsonb_typeof(capabilities) = 'object'),
    endpoints jsonb NOT NULL CHECK (jsonb_typeof(endpoints) = 'object'),
    metadata jsonb NOT NULL CHECK (jsonb_typeof(metadata) = 'object'),
    network_id text,
    deployment_id text,

    ack_deadline timestamptz,
    ack_timeout_emitted_at timestamptz,
    liveness_timeout_emitted_at timestamptz,

    introspected_at timestamptz NOT NULL,
    registered_at timestamptz,
    last_state_change_at timestamptz NOT NULL,
    deregistered_at timestamptz,
    failure_code text,
    failure_message text,

    last_applied_event_id uuid NOT NULL,
    last_applied_sequence bigint NOT NULL CHECK (last_applied_sequence >= 0),
    last_applied_topic text,
    last_applied_partition integer CHECK (last_applied_partition >= 0),
    last_applied_offset bigint CHECK (last_applied_offset >= 0),
    correlation_id uuid,
    row_version bigint NOT NULL CHECK (row_version >= 1),

    PRIMARY KEY (entity_id, domain),
    CONSTRAINT ack_deadline_only_while_armed CHECK (
        ack_deadline IS NULL
        OR (current_state IN ('accepted', 'awaiting_ack') AND deregistered_at IS NULL)
    ),
    CONSTRAINT active_means_registered CHECK (
        current_state <> 'active' OR registered_at IS NOT NULL
    ),
    CONSTRAINT provenance_is_whole CHECK (
        num_nulls(last_applied_topic, last_applied_partition, last_applied_offset) IN (0, 3)
    )
) WITH (fillfactor = 80);

COMMENT ON COLUMN registration_projections.last_applied_sequence IS
    'Position in the log of the last event that changed this row. Readers take the view''s.';
COMMENT ON COLUMN registration_projections.row_version IS
    'Version of the published snapshot: raised by one in the upsert that changes the row.';

CREATE TABLE registration_liveness (
    entity_id uuid NOT NULL,
    domain text NOT NULL,
    last_heartbeat_at timestamptz,
    liveness_deadline timestamptz,
    last_applied_sequence bigint NOT NULL CHECK (last_applied_sequence >= 0),

    PRIMARY KEY (entity_id, domain)
    -- No foreign key: both rows come from one statement, and a check per row would take a quarter
    -- of the rate at which nodes can register. A row here without its wide row is never read.
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

COMMENT ON COLUMN registration_liveness.liveness_deadline IS
    'Set only while it is armed: the node is active and not deregistered. The fold sees to it.';

-- The eight indexes of the registration schema. An open row is one that is not deregistered.
CREATE INDEX idx_registration_ack_deadline ON registration_projections (ack_deadline)
    WHERE ack_deadline IS NOT NULL;
CREATE INDEX idx_registration_ack_timeout_scan
    ON registration_projections (domain, ack_deadline, entity_id)
    WHERE ack_deadline IS NOT NULL AND ack_timeout_emitted_at IS NULL;
CREATE INDEX idx_registration_current_state ON registration_projections (current_state, entity_id);
CREATE INDEX idx_registration_domain_state
    ON registration_projections (domain, current_state, entity_id)
    WHERE deregistered_at IS NULL;
CREATE INDEX idx_registration_last_event_id ON registration_projections (last_applied_event_id);
CREATE INDEX idx_registration_capabilities
    ON registration_projections USING gin (capabilities jsonb_path_ops);
CREATE INDEX idx_registration_liveness_deadline ON registration_liveness (liveness_deadline)
    WHERE liveness_deadline IS NOT NULL;
CREATE INDEX idx_registration_liveness_timeout_scan
    ON registration_liveness (domain, liveness_deadline, entity_id)
    WHERE liveness_deadline IS NOT NULL;

-- Two more for the questions "whose nodes" and "which kind of node", page by page.
CREATE INDEX idx_registration_tenant ON registration_projections (domain, tenant, entity_id)
    WHERE deregistered_at IS NULL;
CREATE INDEX idx_registration_node_type ON registration_projections (domain, node_type, entity_id)
    WHERE deregistered_at IS NULL;

CREATE VIEW registrations AS
SELECT
    entity_id,
    domain,
    p.tenant,
    p.current_state,
    p.epoch,
    p.node_type,
    p.node_name,
    p.node_version,
    p.capabilities,
    p.endpoints,
    p.metadata,
    p.network_id,
    p.deployment_id,
    p.ack_deadline,
    l.liveness_deadline,
    p.ack_timeout_emitted_at,
    p.liveness_timeout_emitted_at,
    p.introspected_at,
    p.registered_at,
    p.last_state_change_at,
    l.last_heartbeat_at,
    p.deregistered_at,
    p.failure_code,
    p.failure_message,
    p.last_applied_event_id,
    greatest(p.last_applied_sequence, l.last_applied_sequence) AS last_applied_sequence,
    p.last_applied_topic,
    p.last_applied_partition,
    p.last_applied_offset,
    p.correlation_id,
    p.row_version
FROM registration_projections AS p
LEFT JOIN registration_liveness AS l USING (entity_id, domain);
