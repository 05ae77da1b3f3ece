"""Kafka to log: cuts, offsets, admission, numbering, deduplication, inbox, lag, losses."""
