"""Freshness of cached rows: change fence, snapshots and feed health."""
