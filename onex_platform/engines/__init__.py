"""Clients of outside servers, opened and closed here and nowhere else."""
