"""In-memory connector: a backend and a source for tests and benchmarks."""
