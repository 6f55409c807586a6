"""Audit of incomplete feeds: for how long a hit is wrong while a feed omits or alters changes."""
