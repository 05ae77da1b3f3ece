-- The last proof of each name that the rows are what the log says, for those who ask how the service
-- is. Dagster keeps their history.
CREATE TABLE proofs (
    domain text NOT NULL CHECK (domain <> ''),
    name text NOT NULL CHECK (name <> ''),
    proved_at timestamptz NOT NULL DEFAULT now(),
    passed boolean NOT NULL,
    says text NOT NULL,
    PRIMARY KEY (domain, name)
);
