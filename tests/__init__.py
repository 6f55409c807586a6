"""The tests: they mirror the tree, with the tiers beside it; not in the wheel."""
