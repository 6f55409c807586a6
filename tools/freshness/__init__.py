"""Freshness audit: whether a cached row stays stale while rows change and faults strike."""
