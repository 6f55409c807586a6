"""Lookups of one dimension: cache, single flight, batches, retries and deadlines."""
