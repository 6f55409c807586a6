"""Connectors to the backends of dimensions: one folder per technology, and the `ports` they fill.

A new connector also needs its configuration in `config.source` or `config.refresh`, and its entry
in `service.wiring`.
"""
