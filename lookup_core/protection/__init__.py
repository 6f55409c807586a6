"""What protects a store from its askers: breaker, concurrency limit, retry budget, quarantine."""
