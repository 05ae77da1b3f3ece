-- What became of the registry's own events once Kafka had them.

-- When a node was last asked to acknowledge, as the broker confirmed it: an acknowledgement can't be
-- late for a request that nobody could read. Written in the transaction that drops the outbox entry.
CREATE TABLE published_ack_requests (
    domain text NOT NULL,
    entity_id uuid NOT NULL,
    published_at timestamptz NOT NULL,
    PRIMARY KEY (domain, entity_id)
);
CREATE INDEX idx_published_ack_requests_age ON published_ack_requests (domain, published_at);

-- Who still waits for a request to be published.
CREATE INDEX idx_outbox_ack_requests ON outbox (domain, entity_id)
    WHERE event_kind = 'registry.node.ack_requested';
