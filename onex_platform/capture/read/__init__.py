"""What is made of captured pages: replay, the relay to Kafka, reconciliation, retention."""
