"""Event time: watermarks of records and splits, and the valve that merges watermarks."""
