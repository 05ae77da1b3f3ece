-- How many events came with headers or keys that their contract does not want: counted in the
-- transaction that commits a cut, so that a cut counts once.
CREATE TABLE header_findings (
    domain text NOT NULL CHECK (domain <> ''),
    topic text NOT NULL CHECK (topic <> ''),
    day date NOT NULL,
    finding text NOT NULL CHECK (finding <> ''),
    records bigint NOT NULL CHECK (records > 0),
    PRIMARY KEY (domain, topic, day, finding)
);
