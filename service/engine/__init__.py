"""The engine: owns tasks, clocks and waiting; the core decides."""
