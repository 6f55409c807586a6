"""How late things may end in tests, which have neighbours at work on the same machine.

Enough to tell what is in time from what waits for something else: the shortest other timeout is
three seconds. How quick things are is measured by `bench`.
"""

GRACE_S = 2.0
