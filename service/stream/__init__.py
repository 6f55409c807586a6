"""Streaming protocol over WebSocket."""
