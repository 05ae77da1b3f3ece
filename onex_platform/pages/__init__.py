"""The page archive, which is the log: format, store, index, ingest, replay, compaction."""
