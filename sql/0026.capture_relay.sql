-- The relay of captured registration events to Kafka: how far each writer's events were sent, and
-- what the deadline watch may conclude from it.

CREATE TABLE capture_relay_cursors (
    instance text NOT NULL,
    tenant text NOT NULL,
    writer_id text NOT NULL,
    sequence bigint NOT NULL CHECK (sequence > 0),
    PRIMARY KEY (instance, tenant, writer_id)
);

-- Everything that the instance captured before `relayed_until` was acknowledged by the broker at
-- `acknowledged_at`. A mark counts as evidence once the fold has passed `acknowledged_at`. An
-- instance that stops with nothing left to send removes its marks; one that died leaves them, and
-- nobody is declared dead meanwhile whose heartbeats it may hold.
CREATE TABLE capture_relay_marks (
    instance text NOT NULL,
    acknowledged_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    relayed_until timestamptz NOT NULL,
    PRIMARY KEY (instance, acknowledged_at)
);
