"""The archive of pages, which is the log: format, store, replay, compaction, verification."""
