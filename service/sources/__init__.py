"""Adapters of the source port: what loads a dimension, and what follows it."""
