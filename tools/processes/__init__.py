"""Processes that tests and tools run: sidecar, PostgreSQL, Spark executors, a faulty network."""
