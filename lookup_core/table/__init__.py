"""Full cache mode: the table in memory, its loads and reloads."""
