"""Parquet connector: lookups and loads from files."""
