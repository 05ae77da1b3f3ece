"""The servers of a stack: how each is set up, started and known to be ready."""
