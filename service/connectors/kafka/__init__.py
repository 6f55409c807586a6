"""Kafka connector: the changelog of a dimension."""
