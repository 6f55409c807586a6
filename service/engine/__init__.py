"""Engine: runs the core of each dimension, with tasks, clocks and queries."""
