"""Core of the Spark client's lookup operator: watermarks, element queues and pending answers."""
