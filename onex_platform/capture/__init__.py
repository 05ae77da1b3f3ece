"""The RFC-023 snapshotter: captures events durably, cuts them into pages and indexes the pages."""
