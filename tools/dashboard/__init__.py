"""Grafana dashboard of the sidecars, generated from panels in Python."""
