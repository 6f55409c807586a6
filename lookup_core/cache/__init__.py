"""Row cache of a dimension: S3-FIFO in Arrow columns, bounded in bytes."""
