-- Nodes whose next event Kafka refuses for what it is. It and those behind it stay in the outbox, in
-- their order, and are tried again later; the events of all other nodes pass them by.
CREATE TABLE held_publications (
    domain text NOT NULL CHECK (domain <> ''),
    entity_id uuid NOT NULL,
    event_id uuid NOT NULL,
    event_kind text NOT NULL,
    error text NOT NULL CHECK (error <> ''),
    attempts integer NOT NULL DEFAULT 1 CHECK (attempts >= 1),
    held_since timestamptz NOT NULL DEFAULT now(),
    next_try_at timestamptz NOT NULL,
    alerted_at timestamptz,
    PRIMARY KEY (domain, entity_id)
);
