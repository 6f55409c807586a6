"""The streaming protocol: frames, their bytes, and both sides' books of a channel."""
