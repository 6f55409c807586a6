"""Lookup operator: watermarks, element queues, and records with their pending answers."""
