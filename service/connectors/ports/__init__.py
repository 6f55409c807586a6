"""Connector ports: the interfaces of backends and sources."""
