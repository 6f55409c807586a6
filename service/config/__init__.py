"""The configuration: read from YAML and environment, checked once, then plain frozen values."""
