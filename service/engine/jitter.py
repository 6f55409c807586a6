"""What spreads tries, so that they do not come all at once.

The core takes it as a value: it draws nothing by itself.
"""

import random


def jitter() -> float:
    """A number in [0, 1), another one each time."""
    return random.random()  # noqa: S311 -- it guards nothing
