"""The tests, by behaviour; not in the wheel."""
