-- The table has one row per node, as the projections have, and is only looked up by node: nothing is
-- found or pruned by age. Without the index, asking a node again moves one row and no index entry.
DROP INDEX idx_published_ack_requests_age;
