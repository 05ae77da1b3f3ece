"""The embedded servers: PostgreSQL, Kafka and Spark Connect, on loopback, in one folder."""
