"""The read side: the registry in memory, from the compacted topic."""
