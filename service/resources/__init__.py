"""What the process has of its machine: memory, and what to do when it is short."""
