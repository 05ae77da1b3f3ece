-- Canaries: lives of the platform's own node, samples in topics, and what they found.

-- One life per period. `steps` has the time of each step that was taken or seen, by its name.
CREATE TABLE canary_lives (
    domain text NOT NULL,
    epoch bigint NOT NULL,
    begun_at timestamptz NOT NULL,
    steps jsonb NOT NULL DEFAULT '{}',
    ended_at timestamptz,
    stopped_at text, -- the step at which a life ended that got no further
    PRIMARY KEY (domain, epoch)
);
-- Of two that begin a life at once, one does.
CREATE UNIQUE INDEX canary_lives_open ON canary_lives (domain) WHERE ended_at IS NULL;

-- The last sample in each topic.
CREATE TABLE canary_samples (
    topic text PRIMARY KEY,
    event_id uuid NOT NULL,
    partition integer NOT NULL,
    record_offset bigint NOT NULL,
    sent_at timestamptz NOT NULL
);

-- Groups that have read a topic: the oldest sample that one has not passed, and since when it waits.
CREATE TABLE canary_groups (
    topic text NOT NULL,
    group_name text NOT NULL,
    partition integer,
    record_offset bigint,
    waiting_since timestamptz,
    lag bigint NOT NULL DEFAULT 0,
    members integer NOT NULL DEFAULT 0,
    looked_at timestamptz NOT NULL,
    PRIMARY KEY (topic, group_name),
    CONSTRAINT a_place_is_whole CHECK (num_nulls(partition, record_offset, waiting_since) IN (0, 3))
);

-- What is wrong now, and what was told of it; a row goes when its end has been told.
CREATE TABLE canary_troubles (
    name text PRIMARY KEY,
    since timestamptz NOT NULL,
    message text NOT NULL,
    context jsonb NOT NULL,
    told_at timestamptz,
    over_at timestamptz
);
