-- The clock: who watches the deadlines, what was declared, and what is held back.

-- When the deadlines were last looked at with the evidence at hand, and since when without a gap;
-- when they were last scanned, and which deadlines had passed for that scan.
CREATE TABLE deadline_watches (
    domain text PRIMARY KEY CHECK (domain <> ''),
    watched_at timestamptz NOT NULL,
    resumed_at timestamptz NOT NULL,
    scanned_at timestamptz,
    scanned_before timestamptz,
    CONSTRAINT watches_begin_before_they_go_on CHECK (resumed_at <= watched_at)
);

-- Where a scan stopped for lack of time; the next one of its kind goes on there.
CREATE TABLE scan_positions (
    domain text NOT NULL,
    kind text NOT NULL,
    deadline timestamptz NOT NULL,
    entity_id uuid NOT NULL,
    PRIMARY KEY (domain, kind)
);

-- Expiries that the scan declared, whether or not a heartbeat came first in the log: what the guard
-- counts, and by which flapping nodes are known. Pruned by age.
CREATE TABLE declared_expiries (
    event_id uuid NOT NULL,
    domain text NOT NULL,
    tenant text NOT NULL,
    entity_id uuid NOT NULL,
    declared_at timestamptz NOT NULL,
    -- False: an operator, or the end of a hold, had let it pass. It says nothing about the next one.
    guarded boolean NOT NULL,
    PRIMARY KEY (event_id, domain)
);
CREATE INDEX idx_declared_expiries_tenant ON declared_expiries (domain, tenant, declared_at);
CREATE INDEX idx_declared_expiries_age ON declared_expiries (domain, declared_at, entity_id);

-- Times in which more nodes of a tenant fell silent than may expire at once.
CREATE TABLE expiry_holds (
    hold_id uuid PRIMARY KEY,
    domain text NOT NULL,
    tenant text NOT NULL,
    since timestamptz NOT NULL,
    fleet bigint NOT NULL CHECK (fleet >= 0),
    expiry_limit bigint NOT NULL CHECK (expiry_limit >= 0),
    held bigint NOT NULL CHECK (held >= 0),
    alerted_at timestamptz,
    ended_at timestamptz,
    ending text CHECK (ending IN ('silence_over', 'override', 'maximum')),
    CONSTRAINT an_end_has_a_reason CHECK ((ended_at IS NULL) = (ending IS NULL))
);
COMMENT ON COLUMN expiry_holds.held IS 'Overdue nodes that were not allowed to expire, last time.';
CREATE UNIQUE INDEX idx_expiry_holds_open ON expiry_holds (domain, tenant) WHERE ended_at IS NULL;
CREATE INDEX idx_expiry_holds_tenant ON expiry_holds (domain, tenant, since);

-- Operators' orders to let a tenant's silent nodes expire: never changed, never deleted.
CREATE TABLE guard_overrides (
    override_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    domain text NOT NULL,
    tenant text NOT NULL CHECK (tenant <> ''),
    reason text NOT NULL CHECK (reason <> ''),
    ordered_by text NOT NULL CHECK (ordered_by <> ''),
    ordered_at timestamptz NOT NULL,
    until timestamptz NOT NULL,
    CONSTRAINT orders_last_a_while CHECK (until > ordered_at)
);
CREATE INDEX idx_guard_overrides_tenant ON guard_overrides (domain, tenant, until);

-- How large a tenant's fleet is. Heartbeats don't touch this table.
CREATE INDEX idx_registration_active ON registration_projections (domain, tenant)
    WHERE current_state = 'active' AND deregistered_at IS NULL;
