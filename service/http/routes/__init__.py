"""Routes of the HTTP surface, one module per subject."""
