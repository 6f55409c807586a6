"""Resources of the process: memory and threads, their limits, and memory pressure."""
