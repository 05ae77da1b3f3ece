-- Offsets that began anew: a topic was deleted and made again, or lost its end. From there on an
-- offset names another record than before, so every account of offsets says of which generation of
-- the partition it speaks. Within a generation the offsets form one chain, without gap or overlap.
ALTER TABLE consumer_cursors ADD COLUMN generation integer NOT NULL DEFAULT 0;
ALTER TABLE cut_ranges ADD COLUMN generation integer NOT NULL DEFAULT 0;
ALTER TABLE lost_ranges ADD COLUMN generation integer NOT NULL DEFAULT 0;
ALTER TABLE lost_ranges DROP CONSTRAINT lost_ranges_pkey;
ALTER TABLE lost_ranges ADD PRIMARY KEY (domain, topic, partition, generation, start_offset);
ALTER TABLE parked_records ADD COLUMN generation integer NOT NULL DEFAULT 0;
ALTER TABLE parked_records DROP CONSTRAINT parked_records_pkey;
ALTER TABLE parked_records ADD PRIMARY KEY (topic, partition, generation, "offset");

-- Where the chain of a generation ends. What the partition held beyond that, nobody knows.
CREATE TABLE offset_restarts (
    domain text NOT NULL REFERENCES logs,
    topic text NOT NULL,
    partition integer NOT NULL CHECK (partition >= 0),
    generation integer NOT NULL CHECK (generation >= 0),
    next_offset bigint NOT NULL CHECK (next_offset > 0),
    accepted_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (domain, topic, partition, generation)
);
