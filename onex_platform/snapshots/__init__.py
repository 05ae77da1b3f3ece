"""The snapshots: the registry as a compacted topic that everybody reads without asking us."""
