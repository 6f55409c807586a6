"""In-memory backend and source for tests."""
