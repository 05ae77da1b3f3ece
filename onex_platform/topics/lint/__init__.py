"""Judging contracts before anything is deployed: one table of rules, all violations in one run."""
