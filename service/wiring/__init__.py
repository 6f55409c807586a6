"""Wiring: settings and parts of connectors, and the tracer, made from the configuration."""
