"""Kafka: clients, topics on a cluster, readers and senders."""
