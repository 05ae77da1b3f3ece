"""Proof that the archive is whole, and what lies in it that no table names."""
