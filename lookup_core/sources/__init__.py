"""Sources: split assignment, progress, watermarks and event-time alignment."""
