"""The streaming protocol over WebSocket: receive, translate, ask the engine, send."""
