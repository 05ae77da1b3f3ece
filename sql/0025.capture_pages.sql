-- The index of the captured pages: where they lie, whose events they hold, which were replaced.

CREATE TABLE capture_pages (
    page_id text PRIMARY KEY,
    tenant text NOT NULL,
    key text NOT NULL,
    start_time_us bigint NOT NULL,
    end_time_us bigint NOT NULL,
    event_count bigint NOT NULL CHECK (event_count > 0),
    storage_size_bytes bigint NOT NULL CHECK (storage_size_bytes > 0),
    entry jsonb NOT NULL, -- everything, by RFC-023's names
    published_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz,
    CONSTRAINT times_are_a_range CHECK (end_time_us >= start_time_us)
);
CREATE INDEX idx_capture_pages_times ON capture_pages (tenant, start_time_us);
CREATE INDEX idx_capture_pages_expiry ON capture_pages (expires_at) WHERE expires_at IS NOT NULL;

-- What each page holds of each writer: sequences without a gap, first and last included.
CREATE TABLE capture_page_writers (
    page_id text NOT NULL REFERENCES capture_pages ON DELETE CASCADE,
    tenant text NOT NULL,
    writer_id text NOT NULL,
    first_sequence bigint NOT NULL,
    last_sequence bigint NOT NULL,
    first_time_us bigint NOT NULL,
    last_time_us bigint NOT NULL,
    events bigint NOT NULL CHECK (events > 0),
    PRIMARY KEY (page_id, writer_id)
);
CREATE INDEX idx_capture_page_writers ON capture_page_writers (tenant, writer_id, first_time_us);

-- Pages whose events another page holds as well. A page may be named here before it is known, and
-- stays named when it is forgotten: it never comes back.
CREATE TABLE capture_replaced_pages (
    page_id text PRIMARY KEY,
    replaced_at timestamptz NOT NULL DEFAULT now()
);
