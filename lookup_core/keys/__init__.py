"""Keys: typed, canonical, hashed and found, whole columns at a time."""
