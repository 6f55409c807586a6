"""Connections to sidecars: endpoints, handshake, WebSocket, channels."""
