"""Connectors to what holds a dimension's rows: one folder per technology."""
