"""Spark: sessions, and the Python workers of their tasks."""
