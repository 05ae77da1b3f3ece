-- Files of stored hours that were written again with other ones: they stay for a while, for readers
-- that began before, and go.
CREATE TABLE replaced_history (
    key text PRIMARY KEY,
    domain text NOT NULL REFERENCES logs,
    replaced_at timestamptz NOT NULL DEFAULT now()
);
