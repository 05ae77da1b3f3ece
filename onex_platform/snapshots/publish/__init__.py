"""From the outbox and the rows to Kafka."""
