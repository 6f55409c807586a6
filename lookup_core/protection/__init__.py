"""Protection of backends: circuit breaker, concurrency limit, retry budget, quarantine."""
