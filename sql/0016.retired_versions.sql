-- The versions of rows that a rebuild removed because the log does not give them. Whoever read the
-- row's snapshot, or the tombstone that followed it, takes nothing that is not newer: should the node
-- join after all, its row begins above.
CREATE TABLE retired_versions (
    entity_id uuid NOT NULL,
    domain text NOT NULL,
    last_version bigint NOT NULL,
    PRIMARY KEY (entity_id, domain)
);
