"""The registry at moments of the past."""
