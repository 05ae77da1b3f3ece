-- Runs once, when the data volume is empty: the schema registry keeps its subjects here.
CREATE DATABASE onex_schemas;
