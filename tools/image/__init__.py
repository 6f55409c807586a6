"""Container image without an engine: the Dockerfile built in a Debian root and run by runc."""
