-- Who works. Every run, and every `onex pipeline run`, claims a lease and renews it every few seconds;
-- one that stops renewing is dead, whatever else is said of it. All times are this server's: no other
-- clock decides. A lease that has ended stays for a while, for those who ask what happened.
CREATE TABLE leases (
    -- Rises with every claim. Whoever finds its number ended may not commit any more.
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL CHECK (name <> ''),
    -- Only one claim of such a name is at work; the others stand by.
    exclusive boolean NOT NULL,
    host text NOT NULL,
    process integer NOT NULL,
    session text NOT NULL,
    run_id text,
    version text NOT NULL,
    claimed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ready_at timestamptz,
    taken_at timestamptz,
    succession_at timestamptz,
    expires_at timestamptz NOT NULL,
    ended_at timestamptz,
    ending text CHECK (ending IN ('released', 'handed_over', 'stalled', 'expired')),
    CONSTRAINT an_end_has_a_reason CHECK ((ended_at IS NULL) = (ending IS NULL))
);
COMMENT ON COLUMN leases.session IS
    'How its sessions are called here: they are ended with a lease that has expired.';
COMMENT ON COLUMN leases.ready_at IS 'Since when it stands by warm: it could take over at once.';
COMMENT ON COLUMN leases.taken_at IS 'Since when it is at work; empty while it stands by.';
COMMENT ON COLUMN leases.succession_at IS 'Since when it asks for a successor to be started.';
CREATE UNIQUE INDEX idx_leases_holder ON leases (name)
    WHERE exclusive AND taken_at IS NOT NULL AND ended_at IS NULL;
CREATE INDEX idx_leases_open ON leases (name) WHERE ended_at IS NULL;
CREATE INDEX idx_leases_run ON leases (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX idx_leases_ended ON leases (ended_at) WHERE ended_at IS NOT NULL;
