"""Adapters to the stores where the rows of dimensions live; the port is `interface`."""
