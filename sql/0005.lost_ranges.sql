-- Losses that an operator accepted: offsets that the broker deleted before they were archived.
-- Together with cut_ranges they account for every offset of a partition, without gap or overlap.
CREATE TABLE lost_ranges (
    domain text NOT NULL REFERENCES logs,
    topic text NOT NULL,
    partition integer NOT NULL CHECK (partition >= 0),
    start_offset bigint NOT NULL CHECK (start_offset >= 0),
    end_offset bigint NOT NULL,
    accepted_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (domain, topic, partition, start_offset),
    CONSTRAINT losses_are_not_empty CHECK (end_offset > start_offset)
);
