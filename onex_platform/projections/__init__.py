"""Projections: the registry's current state in PostgreSQL, its one writer and its readers."""
