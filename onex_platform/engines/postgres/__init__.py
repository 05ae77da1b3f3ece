"""PostgreSQL: transactions, leases, migrations, staging tables."""
