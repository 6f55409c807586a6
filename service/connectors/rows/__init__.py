"""Rows of any connector: keys with several rows, and reads that outlive their callers."""
