"""Configuration from YAML and environment: parsed and validated once, then frozen."""
