"""Container image: its root file system, its bill of materials, and an engine for tests."""
