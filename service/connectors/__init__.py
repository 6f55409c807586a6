"""Connectors to the backends of dimensions: one folder per technology."""
