-- The platform's own events come back through Kafka. They are counted as duplicates by the cut that
-- reads them, and not archived a second time.

-- Of an event that the platform publishes: sixteen bytes that tell its record from every other one
-- under the same id. Null for all other events.
ALTER TABLE event_ledger ADD COLUMN digest bytea;

-- Echoes are among the duplicates; other duplicates are archived.
ALTER TABLE log_cuts
    ADD COLUMN echoes bigint NOT NULL DEFAULT 0 CHECK (echoes >= 0),
    DROP CONSTRAINT log_cuts_check,
    ADD CONSTRAINT duplicates_are_archived_or_echoes CHECK (
        duplicates BETWEEN echoes AND archived + echoes
    ),
    DROP CONSTRAINT every_record_is_archived_or_parked,
    ADD CONSTRAINT every_record_is_archived_parked_or_echo CHECK (
        read = archived + parked + echoes
    );

-- Which of a range's offsets were echoes.
ALTER TABLE cut_ranges
    ADD COLUMN echoes int8multirange NOT NULL DEFAULT '{}',
    ADD CONSTRAINT echoes_were_read CHECK (echoes <@ int8range(start_offset, end_offset));

ALTER TABLE verified_accounts ADD COLUMN echoed_by_cuts bigint NOT NULL DEFAULT 0;
