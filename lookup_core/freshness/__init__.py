"""How a cache stays true: what changed lately, what a read saw, and whether the feed lives."""
