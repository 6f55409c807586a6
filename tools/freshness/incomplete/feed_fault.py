"""Fault of a feed: a way in which it omits or alters changes, with its repair and its bound.

The bounds are those of docs/explanation/consistency.md.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

from tools.freshness.world import FreshnessWorld

Chance = random.Random


@dataclass(frozen=True, slots=True)
class FeedFault:
    """A way in which a feed is incomplete."""

    name: str
    bound_s: float  # of a wrong hit, without the delay of a complete feed
    strike: Callable[[FreshnessWorld, Chance], None]
    repair: Callable[[FreshnessWorld], None]
    ends_trust: bool = False  # for longer than a run: it is the last fault


def repair_nothing(_: FreshnessWorld) -> None:
    """The feed is complete again."""
