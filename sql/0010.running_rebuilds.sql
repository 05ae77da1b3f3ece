-- Rebuilds and proofs whose process is alive: it holds the advisory lock of the rebuild's id, whose
-- key is the id's first eight bytes. The sweep of replaced pages spares what they may be reading.
CREATE VIEW running_rebuilds AS
    SELECT rebuilds.*
    FROM rebuilds
    JOIN pg_locks ON
        locktype = 'advisory' AND granted AND objsubid = 1
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND to_hex(classid::bigint << 32 | objid::bigint)
            = ltrim(left(replace(rebuild_id::text, '-', ''), 16), '0');
