"""A cluster that agrees with the contracts: what it has, the difference, and making it so."""
