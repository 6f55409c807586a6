"""What shows that a fault of the auditor of freshness had an effect.

Looks at the sidecar from outside; the faults themselves stand in `freshness_faults`.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from tests.chaos.freshness_feeds import feed_of
from tests.chaos.freshness_world import FreshnessWorld
from tests.end_to_end.until import soon


def is_doubted(world: FreshnessWorld, *, within_s: float) -> bool:
    """Whether a feed is not believed any more, or is not soon."""
    return soon(lambda: not world.are_live(), within_s=within_s)


def positions(world: FreshnessWorld) -> list[object]:
    """How far the feeds are read."""
    feeds = [feed_of(world.sidecar, name) for name in world.dimensions]
    return [split["position"] for feed in feeds for split in feed["splits"]]


def rising(world: FreshnessWorld, name: str) -> AbstractContextManager[Callable[[], bool]]:
    """Whether the sidecar has counted more of it since then, or does so soon."""
    return _growing(lambda: world.figures()[name])


def rising_lines(world: FreshnessWorld, event: str) -> AbstractContextManager[Callable[[], bool]]:
    """Whether the sidecar has logged it since then, or does so soon."""
    return _growing(lambda: world.log.read_text().count(event))


def rising_nonsense(world: FreshnessWorld) -> AbstractContextManager[Callable[[], bool]]:
    """Whether a message was met since then, or soon is, that nobody understands."""

    def count() -> int:
        unused = [feed_of(world.sidecar, name)["unused_messages"] for name in world.dimensions]
        return sum(each.get("undecodable", 0) for each in unused)

    return _growing(count)


@contextmanager
def _growing(count: Callable[[], float]) -> Iterator[Callable[[], bool]]:
    before = count()
    yield lambda: soon(lambda: count() > before)
