"""Checks of the sidecar and its machine: configuration, sockets, secrets, limits."""
