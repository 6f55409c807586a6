"""Ports of all connectors, and the code that several connectors share."""
