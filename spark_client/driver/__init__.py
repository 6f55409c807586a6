"""The driver's side: the public API, its options, and the lookups applied to DataFrames."""
