-- How well the service is: what publishing took, what was measured, what is told, and what operators
-- ordered.

-- How long the registry's publications took, in a histogram per minute: written in the transaction
-- that takes the entries from the outbox, so that an entry counts once. Pruned by age.
CREATE TABLE publication_times (
    domain text NOT NULL CHECK (domain <> ''),
    minute timestamptz NOT NULL,
    what text NOT NULL CHECK (what IN ('events', 'snapshots')),
    -- The upper bound of the histogram's class; 0: they were refused, or the broker did not answer.
    within_ms integer NOT NULL CHECK (within_ms >= 0),
    entries bigint NOT NULL CHECK (entries > 0),
    PRIMARY KEY (domain, minute, what, within_ms)
);

-- What was measured at a moment, as alerts and metrics read it. Pruned by age.
CREATE TABLE health_measurements (
    domain text NOT NULL CHECK (domain <> ''),
    measured_at timestamptz NOT NULL,
    readings jsonb NOT NULL CHECK (jsonb_typeof(readings) = 'array'),
    PRIMARY KEY (domain, measured_at)
);

-- Alerts, from when a rule fires for a scope to when that is over.
CREATE TABLE alerts (
    alert_id uuid PRIMARY KEY,
    domain text NOT NULL CHECK (domain <> ''),
    rule text NOT NULL CHECK (rule <> ''),
    scope text NOT NULL CHECK (scope <> ''),
    tier text NOT NULL CHECK (tier IN ('warning', 'critical', 'emergency')),
    says text NOT NULL,
    raised_at timestamptz NOT NULL,
    changed_at timestamptz NOT NULL,
    resolved_at timestamptz,
    -- What others were told last; NULL: nothing.
    told text CHECK (told IN ('warning', 'critical', 'emergency', 'resolved')),
    CONSTRAINT alerts_are_raised_before_they_are_resolved CHECK (resolved_at >= raised_at)
);
CREATE UNIQUE INDEX idx_alerts_open ON alerts (domain, rule, scope) WHERE resolved_at IS NULL;
CREATE INDEX idx_alerts_raised ON alerts (domain, raised_at);
-- What is still to be told.
CREATE INDEX idx_alerts_untold ON alerts (domain, raised_at)
    WHERE told IS DISTINCT FROM CASE WHEN resolved_at IS NULL THEN tier ELSE 'resolved' END;

-- Operators' orders not to be told of alerts: never deleted, only lifted.
CREATE TABLE alert_silences (
    silence_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    domain text NOT NULL CHECK (domain <> ''),
    target text NOT NULL CHECK (target <> ''),
    emergencies boolean NOT NULL,
    reason text NOT NULL CHECK (reason <> ''),
    ordered_by text NOT NULL CHECK (ordered_by <> ''),
    ordered_at timestamptz NOT NULL,
    until timestamptz NOT NULL,
    lifted_at timestamptz,
    lifted_by text CHECK (lifted_by <> ''),
    CONSTRAINT silences_last_a_while CHECK (until > ordered_at),
    CONSTRAINT who_lifts_a_silence_is_named CHECK ((lifted_at IS NULL) = (lifted_by IS NULL))
);
CREATE INDEX idx_alert_silences_until ON alert_silences (domain, until);

-- Operators' broadcasts: all nodes of a tenant were asked to introspect. Never deleted.
CREATE TABLE introspection_broadcasts (
    event_id uuid PRIMARY KEY,
    domain text NOT NULL CHECK (domain <> ''),
    tenant text NOT NULL CHECK (tenant <> ''),
    reason text NOT NULL CHECK (reason <> ''),
    ordered_by text NOT NULL CHECK (ordered_by <> ''),
    ordered_at timestamptz NOT NULL
);
CREATE INDEX idx_introspection_broadcasts_last
    ON introspection_broadcasts (domain, tenant, ordered_at);

-- What went wrong lately, by topic.
CREATE INDEX idx_illegal_events_age ON illegal_events (domain, occurred_at);
CREATE INDEX idx_parked_records_age ON parked_records (domain, parked_at);
