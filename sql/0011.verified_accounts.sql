-- Up to where the accounts of cuts, pages and batches were found to agree, and what they came to by
-- then: the next look counts only what came since. Without a row, it begins at the beginning.
CREATE TABLE verified_accounts (
    domain text PRIMARY KEY REFERENCES logs,
    position bigint NOT NULL CHECK (position >= 0),
    read_by_cuts bigint NOT NULL,
    archived bigint NOT NULL,
    parked_by_cuts bigint NOT NULL,
    in_pages bigint NOT NULL,
    read_by_batches bigint NOT NULL,
    applied bigint NOT NULL,
    duplicate bigint NOT NULL,
    stale bigint NOT NULL,
    illegal bigint NOT NULL,
    parked bigint NOT NULL,
    verified_at timestamptz NOT NULL DEFAULT now()
);
