-- Signs of life of consumers and of whoever holds a lease: the newest of each name.
CREATE TABLE lease_beats (
    lease_name text PRIMARY KEY,
    beaten_at timestamptz NOT NULL,
    holder text NOT NULL,
    fence bigint, -- the number of the lease; of two holders, the higher counts
    is_last boolean NOT NULL -- it ended as it should, and is missed by nobody
);

-- Probes that the platform's own reader reads back.
CREATE TABLE canary_probes (
    probe_id uuid PRIMARY KEY,
    sent_at timestamptz NOT NULL,
    read_at timestamptz
);
