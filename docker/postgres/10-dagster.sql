-- Runs once, when the data volume is empty: Dagster's storage has a database of its own, so that its
-- growth, backups and upgrades don't touch the platform's.
CREATE DATABASE onex_dagster;
