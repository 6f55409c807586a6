"""Streaming protocol: frames, their codec, and the state of a channel on both sides."""
