"""Metrics, logs and traces of the sidecar; they contain neither keys nor rows."""
