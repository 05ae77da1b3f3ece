-- Dead letters of handlers, as the topics of their sources have them: how many wait, since when, and
-- what became of the others. The letters themselves stay in Kafka.
CREATE TABLE handler_letters (
    topic text NOT NULL CHECK (topic <> ''),
    consumer_group text NOT NULL,
    partition integer NOT NULL,
    source_offset bigint NOT NULL,
    key bytea,
    -- In the dead letter topic, where the letter was written last.
    place bigint NOT NULL,
    buried_at timestamptz NOT NULL,
    asked text CHECK (asked IN ('replay', 'release')),
    outcome text CHECK (outcome IN ('replayed', 'released', 'lost')),
    settled_at timestamptz,
    PRIMARY KEY (topic, consumer_group, partition, source_offset),
    CHECK ((outcome IS NULL) = (settled_at IS NULL))
);

CREATE INDEX handler_letters_open ON handler_letters (topic, consumer_group) WHERE outcome IS NULL;

-- How far those topics have been read.
CREATE TABLE handler_letter_positions (
    topic text NOT NULL CHECK (topic <> ''),
    partition integer NOT NULL,
    next_offset bigint NOT NULL,
    PRIMARY KEY (topic, partition)
);
