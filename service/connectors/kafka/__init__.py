"""Kafka connector: a topic as the changelog of a dimension."""
