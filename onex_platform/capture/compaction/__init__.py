"""Many small captured pages become few: which, how, and when the old ones go."""
