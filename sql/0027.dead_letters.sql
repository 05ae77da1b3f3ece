-- What became of a parked record. Its row stays whatever becomes of it: cuts counted it once.
ALTER TABLE parked_records
    ADD COLUMN outcome text CHECK (outcome IN ('submitted', 'entered', 'duplicate', 'purged')),
    ADD COLUMN event_id uuid,
    ADD COLUMN settled_at timestamptz,
    ADD COLUMN settled_by text CHECK (settled_by <> ''),
    ADD COLUMN settled_because text CHECK (settled_because <> ''),
    ADD COLUMN published_at timestamptz,
    ADD CONSTRAINT outcomes_are_whole CHECK (num_nulls(outcome, settled_at, settled_by) IN (0, 3)),
    ADD CONSTRAINT replayed_records_have_an_event CHECK (
        (event_id IS NOT NULL) = (coalesce(outcome, 'purged') <> 'purged')
    ),
    ADD CONSTRAINT purged_records_have_a_reason_and_no_bytes CHECK (
        outcome IS DISTINCT FROM 'purged'
        OR (settled_because IS NOT NULL AND num_nonnulls(key, value) = 0 AND header_names = '{}')
    );
COMMENT ON COLUMN parked_records.outcome IS
    'NULL: it waits. submitted: it is in the inbox, and the next cut takes it into the log.';
COMMENT ON COLUMN parked_records.published_at IS
    'When the broker acknowledged it in the dead letter topic of its source.';
CREATE INDEX idx_parked_records_submitted ON parked_records (domain, event_id)
WHERE outcome = 'submitted';
CREATE INDEX idx_parked_records_unpublished ON parked_records (domain, topic, parked_at)
WHERE published_at IS NULL;

-- A record that is replayed keeps its place in Kafka and the time that its sender reported.
ALTER TABLE fact_inbox
    ADD COLUMN reported_at timestamptz,
    ADD COLUMN topic text,
    ADD COLUMN partition integer CHECK (partition >= 0),
    ADD COLUMN "offset" bigint CHECK ("offset" >= 0),
    ADD CONSTRAINT provenance_is_whole CHECK (num_nulls(topic, partition, "offset") IN (0, 3));
