"""Checks of backends: PostgreSQL, Kafka, Parquet."""
