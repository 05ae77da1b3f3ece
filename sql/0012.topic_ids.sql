-- Which topic a cursor belongs to. A topic that is deleted and made again has the same name and
-- another id: so it is recognised even if it has grown beyond the old cursor. Null: not known yet.
ALTER TABLE consumer_cursors ADD COLUMN topic_id uuid;

-- A partition of such a topic may have been empty when the old one was read.
ALTER TABLE offset_restarts DROP CONSTRAINT offset_restarts_next_offset_check;
ALTER TABLE offset_restarts ADD CONSTRAINT offset_restarts_next_offset_check
    CHECK (next_offset >= 0);
