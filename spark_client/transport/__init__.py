"""Connections of the client to sidecars: endpoints, handshake, WebSocket, channels."""
