"""The rows of a dimension by key, in columns, bounded in bytes."""
