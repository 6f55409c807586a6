"""Connector ports, and the code that several connectors share."""
