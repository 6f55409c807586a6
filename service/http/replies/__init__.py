"""Bodies of lookup responses: JSON and Arrow."""
