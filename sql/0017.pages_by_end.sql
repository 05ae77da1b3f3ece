-- Whoever goes on from a position finds the pages behind it without passing all those before it.
CREATE INDEX idx_pages_end ON pages (domain, max_position) WHERE replaced_at IS NULL;
