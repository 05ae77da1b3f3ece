-- An event's envelope is published as it was written. Nobody looks into it by an index, so it need
-- not be taken apart to be stored, nor put together again to be published.
ALTER TABLE outbox ALTER COLUMN envelope TYPE json USING envelope::text::json;
ALTER TABLE handed_facts ALTER COLUMN envelope TYPE json USING envelope::text::json;
