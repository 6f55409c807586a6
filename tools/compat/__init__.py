"""Compatibility of the client: environments of old and new libraries, and their checks."""
