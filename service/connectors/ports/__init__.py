"""Connector ports: the interfaces of backends and sources, and code that connectors share."""
