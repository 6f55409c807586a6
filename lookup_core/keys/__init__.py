"""Keys: type conversion, canonical bytes, hashes and the key index, on whole columns."""
