-- The log is shared: what knows only pages stands apart from what knows cuts and rebuilds.

-- The head belongs to the cuts that move it; another log may have none.
CREATE TABLE log_heads (
    domain text PRIMARY KEY REFERENCES logs,
    head timestamptz NOT NULL
);
INSERT INTO log_heads SELECT domain, head FROM logs;
ALTER TABLE logs DROP COLUMN head;

-- What is counted of a page's events is named by its log.
UPDATE pages
SET metadata = metadata - 'decided'
    || jsonb_build_object(
        'counters', jsonb_build_object('decided', coalesce((metadata ->> 'decided')::bigint, 0))
    );

-- Readers in progress. Each holds the advisory lock whose key is the first eight bytes of its pin's
-- id: a row whose lock is free was left by a process that died. Not logged: after a crash of the
-- server there are no readers.
CREATE UNLOGGED TABLE log_pins (
    pin_id uuid PRIMARY KEY,
    domain text NOT NULL,
    pinned_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO log_pins SELECT rebuild_id, domain, started_at FROM rebuilds;
DROP VIEW running_rebuilds;
ALTER TABLE rebuilds DROP COLUMN started_at;

-- What was replaced after the oldest of these was set is kept until its reader is done.
CREATE VIEW held_log_pins AS
    SELECT log_pins.*
    FROM log_pins
    JOIN pg_locks ON
        locktype = 'advisory' AND granted AND objsubid = 1
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND to_hex(classid::bigint << 32 | objid::bigint)
            = ltrim(left(replace(pin_id::text, '-', ''), 16), '0');
