-- Topics that move to another name or version: how far each has come, and what was seen on the way.

CREATE TABLE topic_migrations (
    source text PRIMARY KEY,
    target text NOT NULL,
    phase text NOT NULL CHECK (phase IN ('assess', 'dual', 'move', 'freeze', 'retired')),
    -- A change that has begun and not ended: whoever was killed in it left it here.
    changing_to text CHECK (changing_to IN ('assess', 'dual', 'move', 'freeze', 'retired')),
    entered_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Since when both sides are written.
    dual_since timestamptz,
    -- Ends of the source's partitions when it was frozen, by partition.
    frozen_at jsonb NOT NULL DEFAULT '{}'
);

-- Who changed a phase, when and why, what was waived, and what had been measured.
CREATE TABLE migration_changes (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source text NOT NULL,
    from_phase text NOT NULL,
    to_phase text NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    changed_by text NOT NULL,
    reason text,
    waived jsonb NOT NULL DEFAULT '[]',
    evidence jsonb NOT NULL DEFAULT '{}'
);
CREATE INDEX migration_changes_source ON migration_changes (source, id);

-- Groups that read the target now, and where their predecessors stopped, by partition.
CREATE TABLE migrated_groups (
    source text NOT NULL,
    old_group text NOT NULL,
    successor text NOT NULL,
    stopped_at jsonb NOT NULL,
    handed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (source, old_group)
);

-- The next offset that a mirror looks at; a topic may be mirrored in either direction.
CREATE TABLE mirror_positions (
    origin text NOT NULL,
    destination text NOT NULL,
    partition integer NOT NULL,
    next_offset bigint NOT NULL CHECK (next_offset >= 0),
    PRIMARY KEY (origin, destination, partition)
);

-- Names that nobody may use again: readers and records of the old topic would meet the new one.
CREATE TABLE retired_topics (
    topic text PRIMARY KEY,
    retired_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
